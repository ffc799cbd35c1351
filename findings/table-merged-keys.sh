#!/bin/bash
# Run: a merge by key, as micro-batches of records are written to a table so that a repetition changes nothing, in three libraries:
# deltalake 1.6.6, Lance 14.0.2 and pyiceberg 0.12.0 (upsert), with pyarrow 26.0.1. One writer, one merge after the other.
#
# Seen: 1. A merge with a null key is repeated: its row is there twice in deltalake and Lance, and a NaN key once. pyiceberg refuses
#          both keys at their first merge.
#       2. A merge has a new key twice: deltalake and Lance take it, and the key is there twice for good: the next merge of it
#          changes both rows. If the key is in the table already, they refuse the same merge. pyiceberg refuses both.
#       3. The key 0.0 meets a row with -0.0: deltalake updates it, Lance adds a row, and pyiceberg does neither, and raises nothing.
#
# Surprising, because the one merge that is refused for a key in the table is accepted for a new one, and because keys of Kafka are null
# where a producer gives none.
. "$(dirname "$0")/lib/common.sh"
python_with deltalake==1.6.6 pylance==14.0.2 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1
cat >drive.py <<'PYTHON'
import math
import os
from itertools import count

import lance
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from seen import see

os.mkdir("iceberg")
CATALOG = SqlCatalog("catalog", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}/iceberg")
CATALOG.create_namespace("db")
NUMBERS = count()


def delta(merges):
    """Make the merges in a new table of Delta, and return its rows."""
    path = f"delta-{next(NUMBERS)}"
    write_deltalake(path, merges[0].schema.empty_table())
    for rows in merges:
        merge = DeltaTable(path).merge(rows, "target.k = source.k", source_alias="source", target_alias="target")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return DeltaTable(path).to_pyarrow_table()


def in_lance(merges):
    """Do the same in Lance."""
    path = f"lance-{next(NUMBERS)}"
    lance.write_dataset(merges[0].schema.empty_table(), path)
    for rows in merges:
        lance.dataset(path).merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    return lance.dataset(path).to_table()


def iceberg(merges):
    """Do the same in Iceberg."""
    table = CATALOG.create_table(f"db.t{next(NUMBERS)}", merges[0].schema)
    for rows in merges:
        table.upsert(rows, join_cols=["k"])
    return table.scan().to_arrow()


def see_all(what, kind, merges, *, in_delta, in_lance_, in_iceberg):
    """Make the merges, lists of key and value, in all three, and compare the rows as texts in order, or the error."""
    tables = [pa.table({"k": pa.array([k for k, _ in rows], kind), "v": pa.array([v for _, v in rows], pa.int64())}) for rows in merges]
    print(what)
    for library, stated in ((delta, in_delta), (in_lance, in_lance_), (iceberg, in_iceberg)):
        try:
            table = library(tables)
            found = sorted(f"{k} {v}" for k, v in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
        except Exception as error:
            text = str(error)
            known = ("multiple source rows", "Duplicate rows", "Invalid literal value: None", "literal from NaN")
            found = next((part for part in known if part in text), text)
        see(f"  {library.__name__}", found, stated)


twice = ["None 1", "None 2", "a 2"]
rows = [[("a", 1), (None, 1)], [("a", 2), (None, 2)]]
see_all("a null key, again", pa.string(), rows, in_delta=twice, in_lance_=twice, in_iceberg="Invalid literal value: None")
once = ["1.0 2", "nan 2"]
rows = [[(1.0, 1), (math.nan, 1)], [(1.0, 2), (math.nan, 2)]]
see_all("NaN, again", pa.float64(), rows, in_delta=once, in_lance_=once, in_iceberg="literal from NaN")
both, refused = ["1 1", "1 2"], "Duplicate rows"
see_all("a new key twice", pa.int64(), [[(1, 1), (1, 2)]], in_delta=both, in_lance_=both, in_iceberg=refused)
both = ["1 3", "1 3"]
see_all("and once more", pa.int64(), [[(1, 1), (1, 2)], [(1, 3)]], in_delta=both, in_lance_=both, in_iceberg=refused)
several = "multiple source rows"
see_all("an old key twice", pa.int64(), [[(1, 0)], [(1, 1), (1, 2)]], in_delta=several, in_lance_=several, in_iceberg=refused)
rows = [[(-0.0, 1)], [(0.0, 2)]]
see_all("0.0 and -0.0", pa.float64(), rows, in_delta=["0.0 2"], in_lance_=["-0.0 1", "0.0 2"], in_iceberg=["-0.0 1"])
PYTHON
quietly python drive.py
