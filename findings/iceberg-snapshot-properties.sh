#!/bin/bash
# Run: pyiceberg 0.12.0 with a catalog in SQLite. Two writers have loaded the same version of a table and have looked for the
# property of their micro-batch in its snapshots. Both write the micro-batch's rows with that property.
#
# Seen: 1. Both appends succeed: the second loses the race, and is repeated on the new version. The rows are there twice. With
#          commit.retry.num-retries=0 in the table's properties it fails, and the rows are there once.
#       2. So do two upserts of a new key: the key is there twice. Of two upserts of a key that is there, the second fails.
#       3. Of two overwrites of the same new key, with a filter that finds nothing, the second fails as well.
#       4. An upsert of a changed row and a new one makes three snapshots with the property, in one commit: after the first
#          the old row is gone, and the new ones are not there yet. An upsert that changes nothing notes no property.
#
# Surprising, because a Delta table answers a conflict to the same appends, if they note the writer's version, and to the same
# merges, and because pyiceberg 0.11 raised CommitFailedException, on which "look, then append" of an application could rely.
. "$(dirname "$0")/lib/common.sh"
python_with "pyiceberg[pyarrow,sql-sqlite]==0.12.0"
cat >drive.py <<'PYTHON'
import os

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from seen import see

COLUMNS = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("value", pa.string())])
folder = os.getcwd()
catalog = SqlCatalog("catalog", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("space")


def create(name, **properties):
    catalog.create_table(f"space.{name}", COLUMNS, properties=properties)


def rows(*pairs):
    return pa.table([list(column) for column in zip(*pairs)], schema=COLUMNS)


def noted(table):
    """Return the property of each snapshot, and its rows."""
    snapshots = [(each.summary["batch"], each.snapshot_id) for each in table.refresh().snapshots()]
    return [(batch, table.scan(snapshot_id=number).to_arrow().num_rows) for batch, number in snapshots]


def race(name, write):
    """Let two writers look, then write; return what the second one gets, and the table."""
    writers = [catalog.load_table(f"space.{name}") for _ in range(2)]
    for writer in writers:
        assert "1" not in [batch for batch, _ in noted(writer)]
    answer = "success"
    for writer in writers:
        try:
            write(writer, {"batch": "1"})
        except (CommitFailedException, ValidationException):
            answer = "conflict"
    return answer, sorted(writer.refresh().scan().to_arrow()["key"].to_pylist())


def append(table, noting):
    table.append(rows((1, "one"), (2, "two")), snapshot_properties=noting)


def insert(table, noting):
    table.upsert(rows((1, "one")), join_cols=["key"], snapshot_properties=noting)


def update(table, noting):
    table.upsert(rows((0, "changed")), join_cols=["key"], snapshot_properties=noting)


def overwrite(table, noting):
    table.overwrite(rows((1, "one")), overwrite_filter="key = 1", snapshot_properties=noting)


create("once", **{"commit.retry.num-retries": "0"})
for write, stated in (
    (append, ("success", [0, 1, 1, 2, 2])),
    (insert, ("success", [0, 1, 1])),
    (update, ("conflict", [0])),
    (overwrite, ("conflict", [0, 1])),
):
    name = write.__name__
    create(name)
    catalog.load_table(f"space.{name}").append(rows((0, "zero")), snapshot_properties={"batch": "0"})
    see(f"second {name}", race(name, write), stated)
see("second append without retries", race("once", append), ("conflict", [1, 2]))
table = catalog.load_table("space.once")
table.upsert(rows((1, "one"), (2, "two")), join_cols=["key"], snapshot_properties={"batch": "2"})
see("upsert without a change", noted(table), [("1", 2)])
table.upsert(rows((1, "changed"), (3, "three")), join_cols=["key"], snapshot_properties={"batch": "3"})
see("  of a changed row and a new one", noted(table), [("1", 2), ("3", 1), ("3", 2), ("3", 3)])
PYTHON
quietly python drive.py
