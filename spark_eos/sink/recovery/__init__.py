"""Find out what became of decided transactions, and finish what can be finished, from any process.

Owns: the fates of transactions, the table of what is done about them, the account of what is lost.
Asks: of the sink its ports and decisions.
Never: takes an error code for the outcome of a transaction.
"""
