#!/bin/bash
# Run: ClickHouse 26.9 in a Python process (chdb 4.4.0). A table without replicas keeps a window of tokens
# (non_replicated_deduplication_window), and jobs repeat an insert under its insert_deduplication_token.
#
# Seen: 1. An insert into 20 partitions, with a window of 20: the repetition writes nothing. With a window of 19 it writes all
#          200 rows again, not those of one partition.
#       2. An insert fails in its third block; its first block is in the table. The repetition with the same blocks completes it.
#          With larger blocks nothing is written and 2,000 rows are missing for good; with the rows in another order 1,000 are
#          missing and 1,000 are there twice. Neither repetition is an error.
#       3. A complete insert that is repeated with smaller blocks writes 900 of its 3,000 rows again.
#       4. The table drops a repetition, and a materialized view on it counts it: the view's target has no window of its own.
#
# Surprising, because one token for each micro-batch looks like the whole of exactly-once. It names blocks by their number, whatever
# is in them; and each block of each partition takes a place in the window and pushes out the oldest, which is asked for next.
. "$(dirname "$0")/lib/common.sh"
python_with chdb==4.4.0
cat >tokens.py <<'PYTHON'
import chdb.session
from seen import see

session = chdb.session.Session()


def ask(text):
    return str(session.query(text)).strip()


def table(name, window, partitions=""):
    settings = f"SETTINGS non_replicated_deduplication_window = {window}"
    ask(f"CREATE TABLE jobs.{name} (n Int64) ENGINE = MergeTree ORDER BY n {partitions} {settings}")


def insert(name, rows, block, order="number", fails=False):
    """Insert the numbers under the table's token, in blocks; fail in the third block if asked to."""
    settings = (
        f"insert_deduplication_token = '{name}', max_block_size = {block}, min_insert_block_size_rows = {block}, "
        "min_insert_block_size_bytes = 0, max_threads = 1, max_insert_threads = 1"
    )
    value = f"{order} + throwIf(number >= 2500)" if fails else order
    try:
        ask(f"INSERT INTO jobs.{name} SETTINGS {settings} SELECT {value} FROM numbers({rows})")
    except RuntimeError:
        return "failed"
    return "succeeded"


def rows(name):
    """Return the number of rows in the table, and of different ones."""
    return tuple(int(each) for each in ask(f"SELECT count(), uniqExact(n) FROM jobs.{name}").split(","))


ask("CREATE DATABASE jobs")
see("ClickHouse", ask("SELECT version()").strip('"')[:5], "26.9.")
print("1. one insert into 20 partitions, twice: rows, and different ones")
for window, stated in ((20, (200, 200)), (19, (400, 200))):
    table(f"window_{window}", window, "PARTITION BY n % 20")
    for _ in range(2):
        insert(f"window_{window}", 200, 1000)
    see(f"   window of {window}", rows(f"window_{window}"), stated)
print("2. an insert of 3,000 rows that fails, and its repetition")
for name, block, order, stated in (
    ("same_blocks", 1000, "number", (3000, 3000)),
    ("larger_blocks", 3000, "number", (1000, 1000)),
    ("other_order", 1000, "2999 - number", (3000, 2000)),
):
    table(name, 100)
    first = insert(name, 3000, 1000, fails=True)
    see(f"   {name}: the first time", (first, rows(name)), ("failed", (1000, 1000)))
    second = insert(name, 3000, block, order)
    see("   the repetition", (second, rows(name)), ("succeeded", stated))
print("3. a complete insert of 3,000 rows, and its repetition with smaller blocks")
table("smaller_blocks", 100)
insert("smaller_blocks", 3000, 1000)
insert("smaller_blocks", 3000, 700)
see("   rows, and different ones", rows("smaller_blocks"), (3900, 3000))
print("4. a complete insert of 10 rows, and its repetition, with two materialized views")
table("viewed", 100)
for name, window in (("with_window", 100), ("without_window", 0)):
    table(name, window)
    ask(f"CREATE MATERIALIZED VIEW jobs.view_{name} TO jobs.{name} AS SELECT n FROM jobs.viewed")
for _ in range(2):
    insert("viewed", 10, 1000)
see("   the table", rows("viewed"), (10, 10))
see("   a target with a window", rows("with_window"), (10, 10))
see("   a target without one", rows("without_window"), (20, 10))
PYTHON
quietly python tokens.py
