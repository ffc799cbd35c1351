"""Write each micro-batch exactly once: tasks prepare transactions, the driver decides, completes and sweeps.

Owns: transactional ids, commit messages, decisions and what operators do about them, the two-phase commit, recovery.
Asks: `client` for transactions, groups and metadata; `codec` for record batches; Spark for micro-batches.
Never: takes an error code for the outcome of a transaction, or calls InitProducerId on an id it does not own.
"""
