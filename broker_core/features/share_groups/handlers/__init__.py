"""The handlers of the APIs of share groups, as in `broker_core.broker.handlers`.

Owns: the answers to the requests of members, of administrators, and of other brokers.

Uses: the other packages of the feature.

Never: keeps state between requests.
"""
