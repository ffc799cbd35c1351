"""The handlers of Kafka's APIs, one module for each area.

Owns: the order of each API's checks, and the form of its responses and errors.
Uses: the parts of `broker`, `wire.messages`, the logs and coordinators.
Never: keeps state from one request to the next.
"""
