"""A Spark driver with a standalone cluster: two hosts, so that Spark speculates.

Spark's local modes never speculate, and in `local-cluster` all executors are on one host, where Spark starts no second
attempt beside a first. Here the master and two workers run in the driver's JVM. The workers are bound to two loopback
addresses, which Spark takes for two hosts, and each starts an executor in a separate process.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.crash.driver import serve
from tests.support.spark_eos.spark_session import build_session, lean_jvm

HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 2
MEMORY_MB = 512
SPLIT_BYTES = 20_000
JVM = lean_jvm()
SETTINGS = {
    "spark.executor.memory": f"{MEMORY_MB}m",
    "spark.executor.cores": str(CORES),
    "spark.executor.extraJavaOptions": JVM,
    # Both executors are registered before the first task is scheduled.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
    "spark.sql.files.openCostInBytes": str(SPLIT_BYTES),
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    # Only a held task takes that much longer than the others, however slow the machine is.
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "6s",
    # The loser of two attempts is not killed, as when the order to do so is lost.
    "spark.python.task.killTimeout": "1h",
}


def start_cluster(folder: Path) -> str:
    """Start a master and a worker for each host in this process's JVM, and return the master's address."""
    gateway = launch_gateway(SparkConf().set("spark.driver.extraJavaOptions", JVM))
    SparkContext._ensure_initialized(gateway=gateway)
    java: Any = gateway.jvm
    settings = java.org.apache.spark.SparkConf()
    for name, value in {"master.ui.port": "0", "worker.ui.port": "0", "master.rest.enabled": "false"}.items():
        settings.set(f"spark.{name}", value)
    deploy = java.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, settings)._1().address()
    address = f"spark://{master.host()}:{master.port()}"
    addresses = gateway.new_array(java.java.lang.String, 1)
    addresses[0] = address
    for number, host in enumerate(HOSTS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host,
            0,
            0,
            CORES,
            2 * MEMORY_MB,
            addresses,
            str(folder / str(number)),
            java.scala.Option.apply(number),
            settings,
            java.scala.Option.empty(),
        )
    return address


def warm_up_executors(spark: SparkSession) -> None:
    """Start the Python workers: Spark speculates after three times a task's duration, and the first task is slow."""

    def import_sink(_: int) -> None:
        import spark_eos.sink.factory  # noqa: F401

    slots = len(HOSTS) * CORES
    spark.sparkContext.parallelize(range(slots), slots).foreach(import_sink)


def main() -> None:
    """Run the commands from stdin until it ends."""
    # Other output on stdout must not mix with the reports.
    os.dup2(1, 3)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="spark-work-") as folder:
        spark = build_session("speculation", SETTINGS | {"spark.master": start_cluster(Path(folder))})
        warm_up_executors(spark)
        serve(spark)


if __name__ == "__main__":
    main()
