"""Spark writes and reads over SASL_SSL with SCRAM and tokens and over mutual TLS, and leaves no secrets behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from tests.support.oidc_provider import CLIENT_SECRET, Provider
from tests.support.spark_eos.secret_search import MISPLACED, Search
from tests.support.spark_eos.secured_brokers import kafka, own
from tests.support.spark_eos.security_clients import Credentials
from tests.support.spark_eos.sink_query import end, lines_of, start
from tests.support.spark_eos.sink_topic import Topic, make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.spark_eos.token_clients import by_endpoint, provider, running

__all__ = ["failpoints_file", "kafka", "own", "provider", "running", "spark"]
pytestmark = pytest.mark.spark
WAYS = {
    "SASL_SSL with SCRAM": lambda own, provider: own.by_password("SCRAM-SHA-512"),
    # The key is in an option, where Spark could show it.
    "mutual TLS": lambda own, provider: own.by_certificate_text(),
    "token endpoint": by_endpoint,
}
COLLECTED = "spark.sql.pyspark.worker.logging.enabled"


@pytest.fixture
def spark_log(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Return the file with all of Spark's own log from INFO on."""
    jvm = spark._jvm
    assert jvm is not None
    path = tmp_path / "spark.log"
    core = jvm.org.apache.logging.log4j.core
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    appender: JavaObject = (
        core.appender.FileAppender.newBuilder()
        .setName("search")
        .withFileName(str(path))
        .setLayout(core.layout.PatternLayout.createDefaultLayout(context.getConfiguration()))
        .build()
    )
    appender.start()
    root.addAppender(appender, None, None)
    spark.sparkContext.setLogLevel("INFO")
    yield path
    spark.sparkContext.setLogLevel("ERROR")
    root.removeAppender("search")
    context.updateLoggers()
    appender.stop()


@pytest.mark.parametrize("way", WAYS)
def test_secured_write_and_read_show_no_secret(
    spark: SparkSession,
    spark_log: Path,
    own: Credentials,
    provider: Provider,
    tmp_path: Path,
    way: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    search = Search(own, CLIENT_SECRET)
    topic = make_topic(own.kafka.bootstrap_servers, 2)
    options = {**WAYS[way](own, provider), "topic": topic.name, "decisionTopic": f"decisions-{topic.name}"}
    spark.conf.set(COLLECTED, "true")
    try:
        shown = _write_and_read(spark, topic, options, tmp_path)
        # A wrong password fails the same way with every other kind of credentials.
        failed = _fail(spark, own, topic) if way.startswith("SASL") else ""
        logs = [str(row.asDict()) for row in spark.tvf.python_worker_logs().collect()]
    finally:
        spark.conf.unset(COLLECTED)
    assert topic.values() == sorted(["batch", *(f"line{number}" for number in range(20))])
    search.look("what Spark shows of plan and progress", shown)
    search.look("what a failing job says", failed)
    search.look("the workers' logs", "\n".join(logs))
    search.look("Spark's log", spark_log.read_bytes())
    assert str(tmp_path / "checkpoint") in spark_log.read_text(), "Spark logged nothing, so the search was empty"
    printed = capfd.readouterr()
    search.look("what is printed", printed.out + printed.err)
    kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert {path.parent.name for path in kept} >= {"offsets", "commits"}
    for path in kept:
        search.look(str(path), path.read_bytes())
    assert any("spark_eos.sink" in each for each in logs), "Spark has no logs of workers, so the search left them out"


def _write_and_read(spark: SparkSession, topic: Topic, options: dict[str, str], folder: Path) -> str:
    lines = folder / "lines"
    lines.mkdir()
    (lines / "0.txt").write_text("".join(f"line{number}\n" for number in range(20)))
    query = end(start(lines_of(spark, str(lines)), str(folder / "checkpoint"), options))
    batch = spark.createDataFrame([("batch",)], "value string")
    batch.write.format("eos-kafka").mode("append").options(**options).save()
    reading = {name: value for name, value in options.items() if name not in ("topic", "decisionTopic")}
    frame = spark.read.format("eos-kafka").options(**reading).option("subscribe", topic.name).load()
    assert frame.count() == 21
    jvm_frame = frame._jdf  # type: ignore[attr-defined]
    return f"{jvm_frame.queryExecution().toString()} {query.recentProgress} {query.lastProgress} {query.exception()}"


def _fail(spark: SparkSession, own: Credentials, topic: Topic) -> str:
    """Write with a wrong password and with a wrong option."""
    texts = []
    wrong = {**own.by_password("SCRAM-SHA-512", MISPLACED), "topic": topic.name}
    for options in (wrong, {**wrong, "kafka.sasl.passwrod": MISPLACED}):
        writer = spark.createDataFrame([("v",)], "value string").write.format("eos-kafka").mode("append")
        # kafka-python drops a response that arrives together with the end of its connection.
        messages = "rejected the credentials|No Kafka broker could be reached|Unknown option"
        with pytest.raises(Exception, match=messages) as raised:
            writer.options(**options).save()
        texts.append(f"{raised.value!r} {raised.value} {getattr(raised.value, 'getStackTrace', str)()}")
    return "\n".join(texts)
