#!/bin/bash
# Run: DuckDB 2.0.1 with tables of pyarrow 26.0.1, and Python's own SQLite. 50,000 keys are written, each three times in one statement, in
# the order of their values 1, 2 and 3: as a micro-batch of records in which keys are updated.
#
# Seen: 1. INSERT ... ON CONFLICT DO UPDATE, and INSERT OR REPLACE, leave the first value of each key, whether the key is new or in the
#          table. In SQLite the last one stays, and in DuckDB as well if each row is a statement of its own. A condition that is to
#          keep the newest, WHERE excluded.v > t.v, is asked for the first value only: if it is false there, all three are dropped.
#       2. MERGE of keys that are in the table: if the three values of a key follow one another, most keys have the first one, some
#          the second or the third. If all first values come before all second ones, each key has the third.
#       3. MERGE of new keys, without a primary key: each key is there three times.
#
# Surprising, because the updates of a key are in order in a partition of Kafka, so that the last one is the one that counts, and because
# DuckDB neither refuses the statement nor keeps the last one.
. "$(dirname "$0")/lib/common.sh"
python_with duckdb==2.0.1 pyarrow==26.0.1
cat >drive.py <<'PYTHON'
import sqlite3
from collections import Counter

import duckdb
import pyarrow as pa
from seen import see

KEYS = 50_000
VALUES = (1, 2, 3)
INSERT = "insert into t select * from s where true on conflict (k) do update set v = excluded.v"
REPLACE = "insert or replace into t select * from s"
MERGE = "merge into t using s on t.k = s.k when matched then update set v = s.v when not matched then insert values (s.k, s.v)"
KEYED, PLAIN = "create table t (k int primary key, v int)", "create table t (k int, v int)"


def table(rows):
    """Return the rows as an Arrow table."""
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int32()), "v": pa.array([v for _, v in rows], pa.int32())})


NEAR = [(key, value) for key in range(KEYS) for value in VALUES]
APART = [(key, value) for value in VALUES for key in range(KEYS)]
OLD = table([(key, 0) for key in range(KEYS)])


def kept(create, statement, rows, old=True):
    """Return how many rows of the table have which value after the statement."""
    with duckdb.connect() as connection:
        connection.execute(create)
        if old:
            connection.register("old", OLD)
            connection.execute("insert into t select * from old")
        connection.register("s", table(rows))
        connection.execute(statement)
        return dict(Counter(value for (value,) in connection.execute("select v from t").fetchall()))


for name, rows in (("near one another", NEAR), ("far apart", APART)):
    print(f"the values of a key are {name}")
    for what, statement in (("ON CONFLICT", INSERT), ("OR REPLACE", REPLACE)):
        see(f"  {what}, new keys", kept(KEYED, statement, rows, old=False), {1: KEYS})
        see(f"  {what}, old keys", kept(KEYED, statement, rows), {1: KEYS})
newest = f"{INSERT} where excluded.v > t.v"
see("  ON CONFLICT ... WHERE excluded.v > t.v, old keys of 0", kept(KEYED, newest, NEAR), {1: KEYS})
lower = [(key, value - 1) for key, value in NEAR]
see("  the same with the values 0, 1 and 2", kept(KEYED, newest, lower), {0: KEYS})
found = kept(PLAIN, MERGE, NEAR)
print(f"MERGE, old keys, near one another: {found}")
see("  most have the first value, and some another", KEYS / 2 < found[1] < KEYS, True)
see("MERGE, old keys, far apart", kept(PLAIN, MERGE, APART), {3: KEYS})
see("MERGE, new keys", kept(PLAIN, MERGE, NEAR, old=False), dict.fromkeys(VALUES, KEYS))

with duckdb.connect() as connection:
    connection.execute(KEYED)
    connection.executemany("insert into t values (?, ?) on conflict (k) do update set v = excluded.v", NEAR[:30])
    see("ON CONFLICT, a statement for each row", connection.execute("select distinct v from t").fetchall(), [(3,)])
with sqlite3.connect(":memory:") as connection:
    connection.execute(KEYED)
    connection.execute("create table s (k int, v int)")
    connection.executemany("insert into s values (?, ?)", NEAR)
    connection.execute(INSERT)
    see("SQLite, ON CONFLICT, new keys", connection.execute("select distinct v from t").fetchall(), [(3,)])
PYTHON
quietly python drive.py
