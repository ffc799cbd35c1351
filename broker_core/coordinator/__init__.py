"""Coordinate transactions and consumer groups: decide by table, have it recorded, replay the record.

Owns: the state behind `__transaction_state` and `__consumer_offsets`, its record formats and transition tables;
the patterns by which clients choose transactional ids and topics.
Asks: `errors`, `types`, `config`, `records`; a `Journal` for what must last.
Never: imports `log`, reads a clock, or changes persisted state other than by replaying a record.
"""
