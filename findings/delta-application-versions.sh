#!/bin/bash
# Run: deltalake 1.6.6 and pyarrow 26.0.1. A writer notes with each commit how far it has read: Transaction(app_id, version), the
# table format's means to write a micro-batch once, and asks for it with transaction_version().
#
# Seen: 1. restore() to an older version takes the rows back and leaves the application's version where it was. A writer that
#          goes on from there never writes the restored rows again.
#       2. A delete or merge that finds nothing to do makes no commit and drops the version. An append of no rows keeps it.
#       3. A second append with the same version is not skipped. One with a lower version takes the noted version back.
#       4. Of two appends with one application id, made from the same version of the table, the second fails.
#
# Surprising, because "how far it has read" is part of the commits that are taken back, and because what a micro-batch without
# effect leaves behind depends on the kind of the write.
. "$(dirname "$0")/lib/common.sh"
python_with deltalake==1.6.6 pyarrow==26.0.1
cat >versions.py <<'PYTHON'
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from seen import see


def batch(version):
    return CommitProperties(app_transactions=[Transaction("reader", version)])


def append(version, rows=1, table="table"):
    write_deltalake(table, pa.table({"n": pa.array([version] * rows, pa.int64())}), mode="append", commit_properties=batch(version))


def state():
    table = DeltaTable("table")
    return sorted(table.to_pyarrow_table()["n"].to_pylist()), table.transaction_version("reader")


for version in (1, 2, 3):
    append(version)
see("1. three micro-batches, and the version", state(), ([1, 2, 3], 3))
DeltaTable("table").restore(0)
see("   restored to the first", state(), ([1], 3))

append(4, rows=0)
see("2. an append of no rows", state(), ([1], 4))
DeltaTable("table").delete("n = 99", commit_properties=batch(5))
see("   a delete of no rows", state(), ([1], 4))
none = pa.table({"n": pa.array([], pa.int64())})
merge = DeltaTable("table").merge(none, "s.n = t.n", source_alias="s", target_alias="t", commit_properties=batch(5))
merge.when_not_matched_insert_all().execute()
see("   a merge of no rows", state(), ([1], 4))

append(6)
append(6)
see("3. the same version twice", state(), ([1, 6, 6], 6))
append(5)
see("   a lower one", state(), ([1, 5, 6, 6], 5))

one, other = DeltaTable("table"), DeltaTable("table")
append(7, table=one)
try:
    append(7, table=other)
    error = None
except CommitFailedError as raised:
    error = str(raised)
see("4. two writers at once", error, "Failed to commit transaction: Concurrent transaction failed.")
PYTHON
quietly python versions.py
