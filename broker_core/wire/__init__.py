"""The encoding and decoding of Kafka messages.

Owns: frames, request and response headers, the table of served API versions; only this package uses `kafka.protocol`;
the check of the library kafka-python.
Uses: no other package.
Never: interprets the content of a message.
"""

import broker_core.wire.library  # noqa: F401 - before any import of kafka
