#!/bin/bash
# Run: a job that replaces rows, and its repetition, which has opened the same version of the table, in three libraries: deltalake
# 1.6.6, Lance 14.0.2 and pyiceberg 0.12.0, with pyarrow 26.0.1. So it is when a job that was given up for dead is still at work.
#
# Seen: 1. deltalake, mode="overwrite" of an empty table: both succeed, and the rows of both are there. With a Transaction of the
#          application, with max_commit_retries=0 or with predicate="true" the second one fails.
#       2. deltalake, an overwrite of a table with rows, from before another writer's append: what was appended stays, with
#          schema_mode="overwrite" as well. With a predicate that names the rows the overwrite fails.
#       3. deltalake, a delete of all rows leaves what was appended since. A delete with a predicate fails.
#       4. Lance: delete and append, which replace the rows of a key, leave the rows of both jobs if the key is new; of a key in the
#          table those of the second. A delete or an update passes over rows that were appended since, without an error. An
#          overwrite removes them. Two updates of one row are both done.
#       5. pyiceberg refuses the second overwrite in each case.
#
# Surprising, because to overwrite is what makes a repeated write harmless, because the first run of a job meets an empty table, and
# because deltalake does look for conflicts as soon as there is a predicate, be it "true".
. "$(dirname "$0")/lib/common.sh"
python_with deltalake==1.6.6 pylance==14.0.2 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1
cat >drive.py <<'PYTHON'
import os
from functools import partial
from itertools import count

import lance
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationException
from seen import see

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
OLD = [(1, "old"), (2, "old")]
REFUSED = "refused"
NUMBERS = count()
os.mkdir("iceberg")
CATALOG = SqlCatalog("catalog", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}/iceberg")
CATALOG.create_namespace("db")


def rows(*values):
    return pa.table([list(each) for each in zip(*values, strict=True)] or [[], []], schema=SCHEMA)


def race(what, open_table, first, second, stated):
    """Let both writers begin with one version, and see what is in the table then, and whether the second one is refused."""
    tables = open_table(), open_table()
    first(tables[0])
    try:
        second(tables[1])
        outcome = []
    except (CommitFailedError, ValidationException) as error:
        outcome = [REFUSED]
        print(f"  {type(error).__name__}: {' '.join(str(error).split())[:100]}")
    found = open_table()
    found = found.to_table() if isinstance(found, lance.LanceDataset) else as_arrow(found)
    see(what, sorted((row["key"], row["value"]) for row in found.to_pylist()) + outcome, stated)


def as_arrow(table):
    return table.to_pyarrow_table() if isinstance(table, DeltaTable) else table.scan().to_arrow()


def delta(*values):
    """Make a table of Delta with these rows, and return the function that opens it."""
    path = f"delta-{next(NUMBERS)}"
    write_deltalake(path, rows(*values))
    return partial(DeltaTable, path)


def in_lance(*values):
    """Do the same in Lance."""
    path = f"lance-{next(NUMBERS)}"
    lance.write_dataset(rows(*values), path)
    return partial(lance.dataset, path)


def iceberg(*values):
    """Do the same in Iceberg."""
    name = f"db.t{next(NUMBERS)}"
    CATALOG.create_table(name, SCHEMA).append(rows(*values))
    return partial(CATALOG.load_table, name)


def overwrite(value, **options):
    """Return a writer that overwrites a table of Delta with one row of key 1."""
    return lambda table: write_deltalake(table, rows((1, value)), mode="overwrite", **options)


def append(value):
    return lambda table: write_deltalake(table, rows((1, value)), mode="append")


FIRST, SECOND = (1, "first"), (1, "second")
once = CommitProperties(app_transactions=[Transaction("job", 1)])
no_retries = CommitProperties(max_commit_retries=0)
race("1. Delta, empty, two overwrites", delta(), overwrite("first"), overwrite("second"), [FIRST, SECOND])
both = (overwrite("first", commit_properties=once), overwrite("second", commit_properties=once))
race("   with a Transaction", delta(), *both, [FIRST, REFUSED])
race("   without retries", delta(), overwrite("first"), overwrite("second", commit_properties=no_retries), [FIRST, REFUSED])
both = (overwrite("first", predicate="true"), overwrite("second", predicate="true"))
race("   with a predicate", delta(), *both, [FIRST, REFUSED])
race("   with rows, two overwrites", delta(*OLD), overwrite("first"), overwrite("second"), [FIRST, REFUSED])

race("2. Delta, an append, then an overwrite", delta(*OLD), append("first"), overwrite("second"), [FIRST, SECOND])
race("   of the schema, too", delta(*OLD), append("first"), overwrite("second", schema_mode="overwrite"), [FIRST, SECOND])
race("   with a predicate", delta(*OLD), append("first"), overwrite("second", predicate="key = 1"), [FIRST, *OLD, REFUSED])

race("3. Delta, an append, then a delete", delta(*OLD), append("first"), lambda table: table.delete(), [FIRST])
race("   with a predicate", delta(*OLD), append("first"), lambda table: table.delete("key = 1"), [FIRST, *OLD, REFUSED])


def replace(key, value):
    """Return a writer that replaces the rows of a key in Lance."""

    def write(dataset):
        dataset.delete(f"key = {key}")
        dataset.insert(rows((key, value)))

    return write


def insert(value):
    return lambda dataset: dataset.insert(rows((1, value)))


def extend(letter):
    """Return a writer that adds a letter to the values of key 1."""
    return lambda dataset: dataset.update({"value": f"value || '{letter}'"}, "key = 1")


both = (replace(3, "first"), replace(3, "second"))
race("4. Lance, two delete and append, of a new key", in_lance(*OLD), *both, [*OLD, (3, "first"), (3, "second")])
race("   of an old key", in_lance(*OLD), replace(1, "first"), replace(1, "second"), [SECOND, OLD[1]])
race("   an append, then a delete", in_lance(*OLD), insert("first"), lambda dataset: dataset.delete("key = 1"), [FIRST, OLD[1]])
race("   an append, then an update", in_lance(*OLD), insert("first"), extend("b"), [FIRST, (1, "oldb"), OLD[1]])
race("   two updates", in_lance(*OLD), extend("a"), extend("b"), [(1, "oldab"), OLD[1]])
to_one_row = partial(lance.write_dataset, rows(SECOND), mode="overwrite")
race("   an append, then an overwrite", in_lance(*OLD), insert("first"), to_one_row, [SECOND])

race(
    "5. Iceberg, empty, two overwrites",
    iceberg(),
    lambda table: table.overwrite(rows(FIRST)),
    lambda table: table.overwrite(rows(SECOND)),
    [FIRST, REFUSED],
)
race(
    "   an append, then an overwrite",
    iceberg(*OLD),
    lambda table: table.append(rows(FIRST)),
    lambda table: table.overwrite(rows(SECOND)),
    [FIRST, *OLD, REFUSED],
)
PYTHON
quietly python drive.py
