"""Transaction and group coordination: decide by table, append the decision to a journal, replay the journal.

Owns: what both coordinators use: the journal they write to, timers, producer ids, record fields and name patterns.
Asks: `errors`, `types`, `records`; its subpackages ask it, never the other way round.
Never: imports `log`, reads a clock, or changes persisted state other than by replaying a record.
"""
