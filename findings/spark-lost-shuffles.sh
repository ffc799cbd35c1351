#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session of one core without adaptive execution (spark.sql.adaptive.enabled=false). 300
# rows in three partitions get a random key, as to spread a large key ("salting"), and are shuffled by it into three partitions. As the
# first one has been read, one of the three files of the shuffle is deleted, as with a lost disk: Spark makes it again, with other keys.
#
# Seen: 1. A DataFrame with a Python function for the key, marked as nondeterministic or not, or made from an RDD with such keys: the job
#          fails, "A shuffle map stage with indeterminate output was failed and retried".
#       2. An RDD, by `partitionBy`, `groupByKey` or `sortByKey`: the job succeeds. Rows are missing, and others are there twice.
#       3. A DataFrame that is made from that RDD behind its shuffle, as to write it: its job succeeds as well, with the same loss.
#       4. A key that is drawn with the row's own number as seed is the same each time: 300 rows.
#
# Surprising, because Spark 4.3 compares what a retried task of a shuffle wrote with what it had written before
# (spark.sql.shuffle.orderIndependentChecksum), by default. That setting begins with `spark.sql`: an RDD's shuffles have no such
# checksum, and an RDD of Python counts as deterministic, whatever its functions do. One retry among a thousand tasks is no error in any log.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >shuffles.py <<'PYTHON'
import glob
import os
import random

from pyspark.errors import PySparkException
from pyspark.sql.functions import udf
from py4j.protocol import Py4JError
from seen import see
from spark_session import session

ROWS, PARTITIONS = 300, 3
spark = session("local[1]", {"spark.local.dir": os.path.join(os.getcwd(), "local"), "spark.sql.adaptive.enabled": "false"})
LOST = os.path.join(os.getcwd(), "lost")


def losing(index, rows):
    """Pass the rows on; at the end of the first partition, once, delete a file of the newest shuffle."""
    yield from rows
    if index == 0 and not os.path.exists(LOST):
        files = glob.glob("local/**/shuffle_*_0.data", root_dir=os.path.dirname(LOST), recursive=True)
        newest = max(files, key=lambda path: int(os.path.basename(path).split("_")[1]))
        os.remove(os.path.join(os.path.dirname(LOST), newest))
        open(LOST, "x").close()


def outcome(rdd, through=lambda rdd: rdd):
    """Return what becomes of the 300 rows when a file is lost in the middle."""
    try:
        rows = through(rdd.mapPartitionsWithIndex(losing)).collect()
    except (Py4JError, PySparkException) as error:
        return "fails" if "indeterminate output was failed and retried" in str(error) else str(error)
    os.remove(LOST)
    print(f"   {len(rows)} rows, {len(set(rows))} different ones")
    return "right" if sorted(rows) == sorted(set(rows)) and len(rows) == ROWS else "rows missing and twice"


def salted(salt):
    return spark.sparkContext.parallelize(range(ROWS), PARTITIONS).map(lambda n: (salt(n), n))


def anything(_):
    return random.randrange(10**6)


def by_number(n):
    return random.Random(n).randrange(10**6)


def of_frame(frame):
    answer = outcome(frame.repartition(PARTITIONS, "key").rdd.map(lambda row: row.n))
    if os.path.exists(LOST):
        os.remove(LOST)
    return answer


frame = spark.range(0, ROWS, 1, PARTITIONS).withColumnRenamed("id", "n")
function = udf(anything, "long")
see("1. DataFrame, function marked", of_frame(frame.withColumn("key", function.asNondeterministic()("n"))), "fails")
see("   function not marked", of_frame(frame.withColumn("key", function("n"))), "fails")
see("   made from an RDD", of_frame(spark.createDataFrame(salted(anything), "key long, n long")), "fails")
WRONG = "rows missing and twice"
see("2. RDD, partitionBy", outcome(salted(anything).partitionBy(PARTITIONS, lambda key: key).values()), WRONG)
see("   groupByKey", outcome(salted(anything).groupByKey(PARTITIONS).flatMap(lambda pair: pair[1])), WRONG)
see("   sortByKey", outcome(salted(anything).sortByKey(numPartitions=PARTITIONS).values()), WRONG)


def through_frame(rdd):
    return spark.createDataFrame(rdd.map(lambda n: (n,)), "n long").where("n >= 0").rdd.map(lambda row: row.n)


see("3. DataFrame made behind it", outcome(salted(anything).partitionBy(PARTITIONS, lambda key: key).values(), through_frame), WRONG)
see("4. RDD, key by the row's number", outcome(salted(by_number).partitionBy(PARTITIONS, lambda key: key).values()), "right")
PYTHON
quietly python shuffles.py
