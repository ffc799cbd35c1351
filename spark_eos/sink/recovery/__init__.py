"""Recovery: it finds out what became of decided transactions and finishes what can be finished, from any process.

Owns: the fates of transactions, the table of actions, the list of lost transactions.

Uses: of the sink its ports and decisions.

Never: treats an error code as the outcome of a transaction.
"""
