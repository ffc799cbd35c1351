"""A Spark driver that runs streaming queries on command, in a separate process with a JVM that can be killed.

Commands come on stdin and reports go to stdout, one JSON object in a line. The command `{"name", "input", "source",
"checkpoint", "options"}` starts a query that ends when all input is copied: text files, one for each micro-batch, or
what our source reads with the options `source`. `{"name", "error"}` reports its end. The first report is `{"jvm":
pid}`, after a first query has warmed up the JVM.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_eos.spark_session import build_session
from tests.support.waiting import wait_until

# Every held task keeps its slot, and a task may fail twice before its job does.
MASTER = "local[64,3]"
# A file of some 40 kB makes two tasks.
SPLIT_BYTES = 24_000
SETTINGS = {
    # A killed driver may leave a file with which Spark 4.3 starts no query: `findings/spark-killed-first-offset.sh`.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.master": MASTER,
    "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
    "spark.sql.files.openCostInBytes": str(SPLIT_BYTES),
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # As docs/spark/latency.md recommends; the other tests run over TCP, as Spark does by default.
    "spark.python.unix.domain.socket.enabled": "true",
}
_out = threading.Lock()
_running: dict[str, StreamingQuery] = {}


def report(**what: Any) -> None:
    """Send one report to the test."""
    with _out:
        os.write(3, (json.dumps(what) + "\n").encode())


def start(spark: SparkSession, command: Mapping[str, Any], form: str = "eos-kafka") -> StreamingQuery:
    """Start to copy; a line is always in the same task of the same micro-batch."""
    if command.get("source"):
        lines = spark.readStream.format("eos-kafka").options(**command["source"]).load()
        rows = lines.selectExpr("key", "concat(CAST(value AS STRING), ' <- ', partition, '@', offset) AS value")
    else:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(command["input"])
        rows = lines.selectExpr("substring_index(value, ' ', 1) AS key", "value")
    writer = rows.writeStream.format(form).option("checkpointLocation", command["checkpoint"])
    writer = writer.options(**command["options"])
    # An endless query runs as soon as there is input, as Spark's queries do by default.
    return (writer if command.get("endless") else writer.trigger(availableNow=True)).start()


def run(spark: SparkSession, command: Mapping[str, Any]) -> None:
    """Run one query to its end and report it."""
    error = None
    # Spark looks for Python data sources in the active session only, and a new thread has none.
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    try:
        query = _running[command["name"]] = start(spark, command)
        query.awaitTermination()
    except Exception as failure:
        error = "\n".join([str(failure), *causes(failure)])
    _running.pop(command["name"], None)
    report(name=command["name"], error=error)


def stop(name: str) -> None:
    """Stop a query, which may be about to start."""
    wait_until(lambda: name in _running, f"{name} runs")
    _running[name].stop()


def causes(failure: Exception) -> list[str]:
    """Return the causes that Spark's JVM reports and the text of the failure omits."""
    trace = getattr(failure, "_stackTrace", None) or ""
    kept = ("Caused by", "Serialization stack", "\t- ")
    return [line.strip()[:500] for line in trace.splitlines() if line.startswith(kept)]


def warm_up(spark: SparkSession) -> None:
    """Run a small query, so that classes are loaded and compiled before the tests."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "input").mkdir()
        (Path(folder) / "input" / "0.txt").write_text("0 0\n")
        command = {"input": f"{folder}/input", "checkpoint": f"{folder}/checkpoint", "options": {}}
        start(spark, command, "noop").awaitTermination()


def serve(spark: SparkSession) -> None:
    """Run the commands from stdin until it ends."""
    warm_up(spark)
    report(jvm=spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    for line in sys.stdin:
        command = json.loads(line)
        if "stop" in command:
            threading.Thread(target=stop, args=(command["stop"],), daemon=True).start()
        else:
            threading.Thread(target=run, args=(spark, command), daemon=True).start()


def main() -> None:
    """Serve commands until stdin ends."""
    # Other output on stdout must not mix with the reports.
    os.dup2(1, 3)
    os.dup2(2, 1)
    serve(build_session("crash", SETTINGS))


if __name__ == "__main__":
    main()
