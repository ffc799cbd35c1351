"""The Kafka client: connections, coordinators, the transactional producer, transactions.

Owns: sockets and their loop, retries and their deadlines, what each error code requires of a client.

Uses: `kafka.net` for connections, TLS and SASL; `kafka.protocol` for messages; `codec` for sealed batches.

Never: decides whether a transaction should commit, or treats an EndTxn error code as the outcome.
"""

import broker_core.records  # before any other import of crc32c
import broker_core.wire  # noqa: F401 - before any import of kafka
