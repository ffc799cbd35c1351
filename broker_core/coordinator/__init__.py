"""The transaction and group coordinators, which decide by table, append the decision to a journal, and replay it.

Owns: what both coordinators use: the journal interface, timers, producer ids, record fields and name patterns.
Uses: `errors`, `types`, `records`; its subpackages use it, never the other way round.
Never: imports `log`, reads a clock, or changes persisted state other than by replaying a record.
"""
