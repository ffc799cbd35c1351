"""Let an operator look and intervene.

Owns: the `eos-kafka` command line: what it prints, what it refuses, what it asks `--yes` for, its exit codes.
Asks: `sink` for decisions, their fates and how they are ended; `client` for the cluster; floor 0.
Never: changes a transaction without saying what it is about to do, or while its query shows signs of life.
"""
