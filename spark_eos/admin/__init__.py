"""Let an operator look and intervene.

Owns: the `eos-kafka` command line over decisions and transactions, when it comes; empty so far.
Asks: `client` and floor 0.
Never: changes a transaction without saying what it is about to do.
"""
