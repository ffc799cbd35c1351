"""The client of any Kafka cluster: connections, coordinators, the transactional producer, transactions.

Owns: sockets and their loop, retries and their deadlines, what each error code asks of a client.
Asks: `kafka.net` for connections, TLS and SASL; `kafka.protocol` for messages; `codec` for sealed batches.
Never: decides whether a transaction should commit; reads an EndTxn error code as a verdict.
"""

import broker_core.records  # noqa: F401 - before any other import of crc32c
