"""The executor side of the sink: it writes the rows of a task into a transaction and leaves it open.

Owns: the transactional ids of a worker process, partitioning, record batches, the abort of a killed worker's
transaction.

Uses: `client` for the producer, `codec` for record batches; of the sink its cluster, messages and protocol.

Never: commits a transaction, or imports what only the driver needs.
"""
