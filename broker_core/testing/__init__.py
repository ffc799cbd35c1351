"""Comfort for test authors around an `EmbeddedBroker`: records in and out, and groups.

Owns: a client in the broker's own thread, the partitioner, record lists, and views of groups.
Uses: requests as bytes through `broker.connection`; `server.thread`.
Never: a Kafka client, a socket, or a way into a log that skips the checks of a request.
"""
