"""Requests generated from Kafka's message schemas, and the comparison of both brokers' answers.

Owns: the requests, the sending, the comparison, and the table of the differences that are known.
Uses: kafka-python's message classes through `broker_core.wire`, `RawClient`.
Never: sends the requests that only brokers send.
"""
