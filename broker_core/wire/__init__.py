"""The encoding and decoding of Kafka messages.

Owns: frames, request and response headers, the table of served API versions; only this package uses `kafka.protocol`.
Uses: no other package.
Never: interprets the content of a message.
"""
