"""An archive of the classes that Spark loads: a JVM that maps it needs half the processor time to its first query.

`python -m tests.support.spark_archive` makes it, once for each Java and PySpark; `make test` runs that. Without the
archive, and where it does not fit, a JVM reads the same classes from Spark's jars.
"""

import os
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from broker_core import EmbeddedBroker
from tests.support.class_archive import keep, writing
from tests.support.java import SHORT_LIFE, java_problem
from tests.support.spark_eos.spark_session import build_session, worker_environment
from tests.support.spark_home import archive, jars

END_DEADLINE_S = 600


def make_archive(path: Path) -> None:
    """Run what most tests run, in a JVM that writes the classes it has loaded when it ends."""
    os.environ.update(worker_environment())
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(topics={"from": 2, "to": 2}) as kafka:
        settings = {
            "spark.driver.extraJavaOptions": " ".join([*SHORT_LIFE, *writing(path)]),
            "spark.local.dir": folder,
            "spark.ui.showConsoleProgress": "false",
        }
        spark = build_session("archive", settings)
        write_and_read(spark, kafka.bootstrap_servers, folder)
        spark.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_DEADLINE_S)
    keep(path, jars())


def write_and_read(spark: SparkSession, address: str, folder: str) -> None:
    """Use sink and source, in batches and in streaming queries."""
    kafka = {"kafka.bootstrap.servers": address}
    rows = spark.createDataFrame([("k", "v")], "key string, value string").repartition(2, "key")
    rows.write.format("eos-kafka").mode("append").options(**kafka, topic="from").save()
    rows.select("value").write.text(f"{folder}/text")
    found = spark.read.format("eos-kafka").options(**kafka, subscribe="from").load()
    assert found.selectExpr("CAST(value AS string) AS value").where("value = 'v'").count() == 1
    from_kafka = spark.readStream.format("eos-kafka").options(**kafka, subscribe="from", startingOffsets="earliest")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{folder}/text")
    for number, frame in enumerate((from_kafka.load(), lines)):
        writer = frame.select("value").repartition(2).writeStream.format("eos-kafka").options(**kafka, topic="to")
        query = writer.option("checkpointLocation", f"{folder}/{number}").trigger(availableNow=True).start()
        assert query.awaitTermination(END_DEADLINE_S), "the query did not end"


def main() -> None:
    """Make the archive, unless it exists or Java is missing."""
    path = archive()
    if path is not None and not path.exists() and java_problem() is None:
        print("Archiving the classes of Spark in .cache: half a minute, once.", flush=True)
        make_archive(path)


if __name__ == "__main__":
    main()
