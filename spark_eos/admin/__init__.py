"""The operator's tools: the command line `eos-kafka`.

Owns: the command line: its output, what it refuses, what requires `--yes`, its exit codes.

Uses: `sink` for decisions, their fates and how they are ended; `client` for the cluster.

Never: changes a transaction without announcing it first, or while its query shows signs of life.
"""
