"""The exactly-once sink: tasks prepare transactions; the driver decides, completes and sweeps.

Owns: transactional ids, commit messages, decisions and the operator's actions on them, the two-phase commit, recovery.

Uses: `client` for transactions, groups and metadata; `codec` for record batches; Spark for micro-batches.

Never: treats an error code as the outcome of a transaction, or calls InitProducerId on an id it does not own.
"""
