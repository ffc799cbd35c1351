#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with spark.sql.python.filterPushdown.enabled=true, and a source of the numbers
# 0 to 3 whose reader has `pushFilters`, as its documentation shows: a filter that the reader has taken is not asked of Spark.
#
# Seen: 1. If its first action has a filter, a DataFrame without one has only that filter's rows, for good. If its first action has
#          none, all later ones are right.
#       2. A union of two filters of one DataFrame has the rows of the second filter twice, and none of the first.
#       3. A query that counts all and counts with a filter, by two subqueries of a view, gives the second count twice.
#       4. A reader that takes no filter, and only leaves out what it excludes: rows are missing in the same ways, none is wrong.
#       5. Two DataFrames, by a `load()` each, are right.
#
# Surprising, because each answer is wrong without an error or a warning, and because a filter in one place of a program changes
# what another place counts. The reader's plan belongs to the `load()`, and the filter that was pushed last is in it.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >filters.py <<'PYTHON'
from pyspark.sql.datasource import DataSourceReader, EqualTo
from seen import see
from spark_session import Source, session


class Reader(DataSourceReader):
    """Reads one number if a filter asks for it; takes such a filter, or leaves it to Spark."""

    def __init__(self, takes):
        self.takes = takes
        self.only = None

    def pushFilters(self, filters):
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("n",):
                self.only = each.value
                if self.takes:
                    continue
            yield each

    def read(self, partition):
        return ((n,) for n in range(4) if self.only in (None, n))


class Filtering(Source):
    def reader(self, schema):
        return Reader("takes" in self.options)


def load(takes):
    reader = spark.read.format("source")
    return (reader.option("takes", "yes") if takes else reader).load()


def numbers(rows):
    return sorted(row.n for row in rows.collect())


def union(one, two):
    return numbers(one.where("n = 1").union(two.where("n = 2")))


def both(rows):
    rows.createOrReplaceTempView("numbers")
    counts = spark.sql("SELECT (SELECT count(*) FROM numbers) AS everything, (SELECT count(*) FROM numbers WHERE n = 1) AS ones")
    return tuple(counts.head())


spark = session(settings={"spark.sql.python.filterPushdown.enabled": "true"})
spark.dataSource.register(Filtering)
rows = load(takes=True)
see("1. with a filter", numbers(rows.where("n = 1")), [1])
see("   all rows after it", numbers(rows), [1])
see("   another filter, and all rows after it", (numbers(rows.where("n = 2")), numbers(rows)), ([2], [1]))
read_before = load(takes=True)
see("   all rows of one that was read before", (numbers(read_before), numbers(read_before.where("n = 1")), numbers(read_before)),
    ([0, 1, 2, 3], [1], [0, 1, 2, 3]))
see("2. the union of n = 1 and n = 2", union(rows, rows), [2, 2])
see("3. count of all, and of n = 1", both(load(takes=True)), (1, 1))
rows = load(takes=False)
see("4. with a reader that takes none: n = 1", numbers(rows.where("n = 1")), [1])
see("   all rows after it", numbers(rows), [1])
see("   the union", union(rows, rows), [2])
see("5. the union of two DataFrames", union(load(takes=True), load(takes=True)), [1, 2])
PYTHON
quietly python filters.py
