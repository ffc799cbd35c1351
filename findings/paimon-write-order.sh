#!/bin/bash
# Run: pypaimon 2.1.0, a table with a primary key. Two writers update the same keys. One process, one commit after the other.
#
# Seen: 1. Each writer is opened after the commit before: the last value stays.
#       2. Two writers have begun on one version. The first one writes key 1 and two other keys, and commits. Then the second one, with
#          key 1, commits. Nothing is refused, and the value of the first one stays.
#       3. The writer of a stream stays open. A job writes 100 keys meanwhile. Then the stream writes these keys in ten commits, the
#          job's last key first: 50 of its 100 updates are lost, without an error.
#       4. With sequence.snapshot-ordering=true the same: pypaimon takes the option and does not use it.
#       5. With sequence.field, which has to rise, the newest value stays in each case.
#
# Surprising, because in a table the last commit wins elsewhere. Here each row has a number, which its writer counts up from the newest
# number that it saw when it began: what decides is how many rows each writer has written since. The option of case 4 was added to
# Paimon so that the later snapshot wins.
. "$(dirname "$0")/lib/common.sh"
python_with pypaimon==2.1.0
cat >drive.py <<'PYTHON'
import os
from itertools import count

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from seen import see

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), ("at", pa.int64()), ("value", pa.string())])
CATALOG = CatalogFactory.create({"warehouse": os.path.join(os.getcwd(), "warehouse")})
CATALOG.create_database("db", True)
TIMES = count()


def create(name, **options):
    CATALOG.create_table(f"db.{name}", Schema.from_pyarrow_schema(SCHEMA, primary_keys=["key"], options=options), False)


class Writer:
    """A writer of one commit, or, with `stream`, one that stays open and commits again and again."""

    def __init__(self, name, stream=False):
        table = CATALOG.get_table(f"db.{name}")
        builder = table.new_stream_write_builder() if stream else table.new_batch_write_builder()
        self._write, self._commit = builder.new_write(), builder.new_commit()
        self._numbers = count(1) if stream else None

    def write(self, value, *keys):
        rows = [{"key": key, "at": next(TIMES), "value": value} for key in keys]
        self._write.write_arrow(pa.Table.from_pylist(rows, schema=SCHEMA))
        return self

    def commit(self):
        number = [next(self._numbers)] if self._numbers else []
        self._commit.commit(self._write.prepare_commit(*number), *number)


def read(name):
    """Return the value of each key."""
    builder = CATALOG.get_table(f"db.{name}").new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return {row["key"]: row["value"] for row in rows}


def ask(name, winner, lost, **options):
    create(f"turns{name}", **options)
    for value in ("first", "second"):
        Writer(f"turns{name}").write(value, 1).commit()
    see("1. in turn: key 1", read(f"turns{name}")[1], "second")

    create(f"race{name}", **options)
    Writer(f"race{name}").write("old", 1).commit()
    first, second = Writer(f"race{name}").write("first", 2, 3, 1), Writer(f"race{name}").write("second", 1)
    first.commit()
    second.commit()
    see("2. at once, the first one with more rows: key 1", read(f"race{name}")[1], winner)

    create(f"stream{name}", **options)
    stream = Writer(f"stream{name}", stream=True)
    stream.write("stream", 1000).commit()
    Writer(f"stream{name}").write("job", *range(100)).commit()
    for end in range(100, 0, -10):
        stream.write("stream", *reversed(range(end - 10, end))).commit()
    left = [key for key, value in read(f"stream{name}").items() if value == "job"]
    see("3. updates of the stream that are lost", len(left), lost)


ask("", "first", 50)
print("4. with sequence.snapshot-ordering")
ask("_snapshots", "first", 50, **{"sequence.snapshot-ordering": "true"})
print("5. with sequence.field")
ask("_in_order", "second", 0, **{"sequence.field": "at"})
PYTHON
quietly python drive.py
