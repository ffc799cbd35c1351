#!/bin/bash
# Run: Lance 14.0.2 (pylance) and pyarrow 26.0.1. A table has the key 1. Two writers open the same version of it and merge rows by key,
# one after the other (merge_insert: update what matches, insert the rest).
#
# Seen: 1. Both merge the new key 2: both succeed, and the key is there twice. With conflict_retries(0), which asks for an error
#          instead of another try, there is none.
#       2. Both merge the old key 1: the second merge is done again on the new version. With conflict_retries(0) it fails.
#       3. Both merge 1 and 2: each is there once. One of them merges both and the other one only 2: the new key is there twice.
#       4. The key is declared as the table's unenforced primary key: the new key is there once. If the second writer appends the key
#          instead of merging it, it is there twice again; if the first one does, it is not.
#
# Surprising, because a merge by key is to be safe to do again, and because whether two writers meet depends on other rows of theirs.
. "$(dirname "$0")/lib/common.sh"
python_with pylance==14.0.2 pyarrow==26.0.1
cat >drive.py <<'PYTHON'
import lance
import pyarrow as pa
from seen import see

PRIMARY = {"lance-schema:unenforced-primary-key": "true"}


def rows(keys, value, *, has_primary_key=False):
    key = pa.field("key", pa.int64(), nullable=False, metadata=PRIMARY if has_primary_key else None)
    return pa.table([pa.array(keys, pa.int64()), pa.array([value] * len(keys))], schema=pa.schema([key, ("value", pa.string())]))


def merge(keys, retries=None):
    """Return a writer that merges the keys."""

    def write(dataset, value):
        by_key = dataset.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        if retries is not None:
            by_key = by_key.conflict_retries(retries)
        by_key.execute(rows(keys, value))

    return write


def append(keys):
    return lambda dataset, value: dataset.insert(rows(keys, value))


def race(what, first, second, stated, *, has_primary_key=False):
    """Let both writers begin with one version, and see what is in the table then."""
    name = what.strip().replace(" ", "-")
    lance.write_dataset(rows([1], "old", has_primary_key=has_primary_key), name)
    datasets = lance.dataset(name), lance.dataset(name)
    errors = []
    for dataset, write, value in zip(datasets, (first, second), ("first", "second"), strict=True):
        try:
            write(dataset, value)
        except OSError as error:
            errors.append("Too many concurrent writers" in str(error))
    found = sorted((row["key"], row["value"]) for row in lance.dataset(name).to_table().to_pylist())
    see(what, (found, errors), stated)


OLD = (1, "old")
TWICE = [OLD, (2, "first"), (2, "second")]
race("1. a new key", merge([2]), merge([2]), (TWICE, []))
race("   a new key, no retries", merge([2], 0), merge([2], 0), (TWICE, []))
race("2. an old key", merge([1]), merge([1]), ([(1, "second")], []))
race("   an old key, no retries", merge([1], 0), merge([1], 0), ([(1, "first")], [True]))
race("3. both keys", merge([1, 2]), merge([1, 2]), ([(1, "second"), (2, "second")], []))
race("   both keys, then the new one", merge([1, 2]), merge([2]), ([(1, "first"), (2, "first"), (2, "second")], []))
race("4. a new key, primary", merge([2]), merge([2]), ([OLD, (2, "second")], []), has_primary_key=True)
race("   merged, then appended", merge([2]), append([2]), (TWICE, []), has_primary_key=True)
race("   appended, then merged", append([2]), merge([2]), ([OLD, (2, "second")], []), has_primary_key=True)
PYTHON
quietly python drive.py
