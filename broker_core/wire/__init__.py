"""The translation of bytes into Kafka messages and back.

Owns: frames, request and response headers, the table of served API versions; nothing else knows `kafka.protocol`.
Uses: nothing of other packages.
Never: looks at what a message means.
"""
