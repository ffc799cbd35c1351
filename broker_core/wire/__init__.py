"""Turn bytes into Kafka messages and back.

Owns: frames, request and response headers, the table of served API versions; the only room that knows `kafka.protocol`.
Asks: nothing of other rooms.
Never: looks at what a message means.
"""
