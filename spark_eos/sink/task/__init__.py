"""Write the rows of one task into a transaction and leave it open, on an executor.

Owns: the transactional ids of a worker process, partitioning, record batches, what ends a killed worker's transaction.
Asks: `client` for the producer, `codec` for record batches; of the sink its ports, messages, decisions and recovery.
Never: commits a transaction, or imports what only the driver needs.
"""
