#!/bin/bash
# Run: Ray 2.60.0, Dataset.write_iceberg with mode UPSERT, with pyiceberg 0.12.0 and pyarrow 26.0.1. One process, a table for each question.
#
# Seen: 1. An UPSERT that has a key twice writes both rows, whether the key is new or in the table, and raises nothing. The next
#          UPSERT of the key leaves one.
#       2. A null key is there once more with each repetition. 0.0 and -0.0 are two keys.
#       3. The first UPSERT into a table that nothing was written to fails: "Cannot scan unknown ref=main". After an append it works.
#       4. Another writer appends a row while the data set is computed. An UPSERT of the same new key succeeds: the key is there twice.
#          An UPSERT of a key in the table fails, though the other writer's key is another one.
#
# Surprising, because pyiceberg, which makes Ray's commits, refuses an upsert that has a key twice, and because the conflict that does
# harm passes, and the one that does none is refused.
. "$(dirname "$0")/lib/common.sh"
python_with 'ray[data]==2.60.0' 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1
export RAY_USAGE_STATS_ENABLED=0
cat >drive.py <<'PYTHON'
import os
from itertools import count

import pyarrow as pa
import ray
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationException
from ray.data import SaveMode
from seen import see

os.mkdir("iceberg")
SETTINGS = {"type": "sql", "uri": f"sqlite:///{os.getcwd()}/catalog.db", "warehouse": f"file://{os.getcwd()}/iceberg"}
CATALOG = SqlCatalog("catalog", **SETTINGS)
CATALOG.create_namespace("db")
NUMBERS = count()
OLD = (1, "old")


def rows(*values, key_type=pa.int64()):
    schema = pa.schema([("key", key_type), ("value", pa.string())])
    return pa.table([list(each) for each in zip(*values, strict=True)], schema=schema)


def table_of(*values, key_type=pa.int64()):
    """Make a table with these rows, and return its name."""
    name = f"db.t{next(NUMBERS)}"
    table = CATALOG.create_table(name, rows(OLD, key_type=key_type).schema)
    if values:
        table.append(rows(*values, key_type=key_type))
    return name


def upsert(data, name):
    keys = {"join_cols": ["key"]}
    data.write_iceberg(name, catalog_kwargs={"name": "catalog", **SETTINGS}, mode=SaveMode.UPSERT, upsert_kwargs=keys)


def content(name):
    return sorted(((row["key"], row["value"]) for row in CATALOG.load_table(name).scan().to_arrow().to_pylist()), key=str)


def upserts(what, *batches, stated, key_type=pa.int64()):
    """Upsert the batches into a table that has the first row of the first one under another value, and see its rows."""
    name = table_of(OLD, key_type=key_type)
    for batch in batches:
        upsert(ray.data.from_arrow(rows(*batch, key_type=key_type)), name)
    see(what, content(name), stated)


def race(what, key, other, stated):
    """Upsert a key; while the data set is computed, another writer appends a row."""
    name = table_of(OLD)

    def compute(batch):
        SqlCatalog("catalog", **SETTINGS).load_table(name).append(rows((other, "other")))
        return batch

    data = ray.data.from_arrow(rows((key, "new"))).map_batches(compute, batch_format="pyarrow")
    try:
        upsert(data, name)
        outcome = "succeeds"
    except ValidationException as error:
        print(f"  {str(error)[:60]}")
        outcome = "fails"
    see(what, (outcome, content(name)), stated)


QUIET = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
ray.init(num_cpus=1, object_store_memory=100_000_000, _temp_dir=f"{os.getcwd()}/ray", **QUIET)
ray.data.DataContext.get_current().enable_progress_bars = False
twice = [(2, "a"), (2, "b")]
upserts("1. a new key twice", twice, stated=[OLD, *twice])
upserts("   and once more, alone", twice, [(2, "c")], stated=[OLD, (2, "c")])
upserts("   a key in the table twice", [(1, "a"), (1, "b")], stated=[(1, "a"), (1, "b")])
null = (None, "a")
upserts("2. a null key, repeated", [null], [null], stated=[OLD, null, null])
upserts("   -0.0, then 0.0", [(-0.0, "a")], [(0.0, "a")], key_type=pa.float64(), stated=[(-0.0, "a"), (0.0, "a"), (1.0, "old")])
name = table_of()
try:
    upsert(ray.data.from_arrow(rows(OLD)), name)
    seen = "succeeds"
except ValueError as error:
    seen = next(line for line in str(error).splitlines() if "ref=" in line).rpartition("ValueError: ")[2]
see("3. the first upsert", seen, "Cannot scan unknown ref=main")
race("4. of a new key, which the other writer appends", 5, 5, ("succeeds", [OLD, (5, "new"), (5, "other")]))
race("   of a key in the table, and another one is appended", 1, 9, ("fails", [OLD, (9, "other")]))
ray.shutdown()
PYTHON
quietly python drive.py
