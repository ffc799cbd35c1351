#!/bin/bash
# Run: dlt 1.31.0 into DuckDB 2.0.1, as a consumer of Kafka that gives each poll to `pipeline.run` and then commits its offsets. 3,000 keys
# have three values each in one run, in the order 1, 2, 3 (and 4, 5, 6 in the next run), as keys that are updated.
#
# Seen: 1. write_disposition="merge" leaves the first value of each key, whether the key is new or in the table. With the hint dedup_sort
#          it is the largest.
#       2. Its strategy "upsert" leaves all three rows of a new key, and the next run gives all three the first value of that run.
#       3. A run fails, as another process has the database open. The next run, with this row and a new one, returns and reports no failed
#          job: the first row is there, the new one is not, and no later run brings it. One line of the log says so.
#       4. If `load` is called first while `has_pending_data` is true, each row is there.
#
# Surprising, because the updates of a key are in order in a partition of Kafka, so that the last one counts, and because a run that
# returns looks like one that has loaded what it was given: it finished the run before it and left its own data out.
. "$(dirname "$0")/lib/common.sh"
export DLT_DATA_DIR="$folder/dlt" RUNTIME__DLTHUB_TELEMETRY=false RUNTIME__LOG_LEVEL=WARNING
python_with 'dlt[duckdb]==1.31.0' duckdb==2.0.1
cat >drive.py <<'PYTHON'
import subprocess
import sys

import dlt
import duckdb
from dlt.pipeline.exceptions import PipelineStepFailed
from seen import see

ALL = 3000


def pipeline(name):
    return dlt.pipeline(name, destination=dlt.destinations.duckdb(f"{name}.duckdb"), dataset_name="data")


def read(name, query):
    with duckdb.connect(f"{name}.duckdb") as connection:
        return connection.execute(query).fetchall()


def counts(name):
    """Return the values in the table, and how many rows have each."""
    return dict(read(name, "SELECT value, count(*) FROM data.t GROUP BY value ORDER BY value"))


def merge(name, strategy="delete-insert", **hints):
    """Merge three values of each key, twice, and return what is there each time."""

    @dlt.resource(name="t", primary_key="key", write_disposition={"disposition": "merge", "strategy": strategy}, **hints)
    def updates(values):
        yield [{"key": key, "value": value} for value in values for key in range(ALL)]

    into, seen = pipeline(name), []
    for values in ((1, 2, 3), (4, 5, 6)):
        into.run(updates(values))
        seen.append(counts(name))
    return seen


see("1. merge", merge("merged"), [{1: ALL}, {4: ALL}])
see("   with dedup_sort", merge("sorted", columns={"value": {"dedup_sort": "desc"}}), [{3: ALL}, {6: ALL}])
see("2. upsert", merge("upserted", "upsert"), [{1: ALL, 2: ALL, 3: ALL}, {4: 3 * ALL}])


def append(into, *numbers):
    return into.run([{"n": number} for number in numbers], table_name="t", write_disposition="append")


def fail_once(name):
    """Make a table with row 1, let a run with row 2 fail, and return the pipeline."""
    into = pipeline(name)
    append(into, 1)
    hold = f"import duckdb, sys; c = duckdb.connect('{name}.duckdb'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        try:
            append(into, 2)
            step = None
        except PipelineStepFailed as error:
            step = error.step
        other.stdin.close()
    see("3. the step that fails while another process has the database open", step, "load")
    return into


def rows(name):
    return [row[0] for row in read(name, "SELECT n FROM data.t ORDER BY n")]


into = fail_once("left")
see("   the next run, of 2 and 3: failed jobs", append(into, 2, 3).has_failed_jobs, False)
see("   rows", rows("left"), [1, 2])
append(into, 4)
see("   after a run of 4", rows("left"), [1, 2, 4])
into = fail_once("kept")
while into.has_pending_data:
    into.load()
append(into, 3)
see("4. after the pending load, and a run of 3", rows("kept"), [1, 2, 3])
PYTHON
quietly python drive.py
