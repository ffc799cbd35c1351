"""The rows of docs/spark/python-source.md: what Spark does otherwise for a data source in Python."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_eos.sink_topic import Topic, make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark
DEADLINE_S = 240
MODE = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"
NO_LIMIT = "maximum arrow batch size should be greater than 0"
OWN_ERROR = "spark_eos.errors.OptionError: "


class Jobs:
    """Jobs that write one row each to one topic, and read what is there."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        self.spark, self.topic, self.folder = spark.newSession(), topic, folder
        self.options = topic.options(subscribe=topic.name, startingOffsets="earliest")
        self.tables = f"{topic.name.replace('-', '_')}_"

    @property
    def in_sql(self) -> str:
        """Return the options of a statement."""
        return "WITH (" + ", ".join(f"`{name}` = '{value}'" for name, value in self.options.items()) + ")"

    @property
    def row(self) -> DataFrame:
        return self.spark.sql("SELECT '1' AS key, 'a' AS value")

    def write(self, mode: str | None = "append", *more: str) -> None:
        writer = self.row.selectExpr("*", *more).write.format("eos-kafka").options(**self.options)
        (writer if mode is None else writer.mode(mode)).save()

    def read(self) -> int:
        return self.spark.read.format("eos-kafka").options(**self.options).load().count()

    def stream(self, output_mode: str = "append", sink: str = "eos-kafka", **trigger: str | bool) -> None:
        """Copy the topic to itself once."""
        frame = self.spark.readStream.format("eos-kafka").options(**self.options).load().select("key", "value")
        more = {name: str(trigger.pop(name)) for name in list(trigger) if name.startswith("async")}
        writer = frame.writeStream.format(sink).outputMode(output_mode).options(**self.topic.options(), **more)
        writer = writer.option("checkpointLocation", str(self.folder)).trigger(**(trigger or {"availableNow": True}))
        assert writer.start().awaitTermination(DEADLINE_S)

    def stream_to_table(self, name: str) -> None:
        frame = self.spark.readStream.options(**self.options).table(name).selectExpr(
            "cast(key as string) as key", "cast(value as string) as value"
        )  # fmt: skip
        writer = frame.writeStream.format("eos-kafka").options(**self.topic.options())
        query = writer.option("checkpointLocation", str(self.folder)).trigger(availableNow=True).toTable(f"{name}_out")
        assert query.awaitTermination(DEADLINE_S)

    def sql(self, statement: str) -> list[object]:
        return list(self.spark.sql(statement).collect())

    def without_limit(self, limit: int, action: Callable[[], object]) -> None:
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", limit)
        action()


@pytest.fixture
def jobs(spark: SparkSession, kafka_address: str, tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(spark, make_topic(kafka_address), tmp_path)
    yield jobs
    for table in jobs.spark.sql(f"SHOW TABLES LIKE '{jobs.tables}*'").collect():
        jobs.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.tableName}")


REFUSED: dict[str, tuple[Callable[[Jobs], object], str]] = {
    "no mode": (lambda jobs: jobs.write(None), MODE),
    "ignore": (lambda jobs: jobs.write("ignore"), MODE),
    "error": (lambda jobs: jobs.write("error"), MODE),
    "overwrite": (lambda jobs: jobs.write("overwrite"), f'{OWN_ERROR}Save mode Overwrite.*mode\\("append"\\)'),
    "two columns": (lambda jobs: jobs.write("append", "1 AS x", "2 AS x"), f"{OWN_ERROR}.*more than one column.*'x'"),
    "two fields": (lambda jobs: jobs.write("append", "struct(1 AS x, 2 AS x) AS s"), f"{OWN_ERROR}.*'s.x'"),
    "interval": (lambda jobs: jobs.write("append", "INTERVAL '1' YEAR AS age"), f"{OWN_ERROR}.*year to month: 'age'"),
    "calendar interval": (lambda jobs: jobs.write("append", "make_interval(1) AS age"), 'Cannot use "INTERVAL" type'),
    "read without limit": (lambda jobs: jobs.without_limit(0, jobs.read), NO_LIMIT),
    "stream without limit": (lambda jobs: jobs.without_limit(-1, jobs.stream), NO_LIMIT),
    "update": (lambda jobs: jobs.stream("update"), "does not support Update mode"),
    "real time sink": (lambda jobs: jobs.stream("update", realTime="5 seconds"), "SINK_NOT_IN_ALLOWLIST"),
    "real time source": (
        lambda jobs: jobs.stream("update", sink="console", realTime="5 seconds"),
        "REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
    ),
    "continuous": (lambda jobs: jobs.stream(continuous="5 seconds"), "does not support continuous processing"),
    "asynchronous progress": (
        lambda jobs: jobs.stream(asyncProgressTrackingEnabled=True, processingTime="0 seconds"),
        "does not support async progress tracking",
    ),
    "partitionBy": (
        lambda jobs: jobs.row.write.format("eos-kafka").mode("append").partitionBy("key").save(),
        "partitioning or clustering columns do not match",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_call_is_refused(jobs: Jobs, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(PySparkException, match=message):
        call(jobs)
    assert not jobs.topic.values()


def test_limit_of_records_matters_to_reads_only(jobs: Jobs) -> None:
    jobs.without_limit(0, jobs.write)
    assert jobs.topic.values() == ["a"]


def test_table_has_no_options_but_those_of_the_statement(jobs: Jobs) -> None:
    jobs.write()
    given, plain = f"{jobs.tables}given", f"{jobs.tables}plain"
    options = jobs.in_sql.removeprefix("WITH ").replace(" = ", " ")
    jobs.sql(f"CREATE TABLE {given} USING `eos-kafka` OPTIONS {options}")
    with pytest.raises(PySparkException, match=r"WITH \(subscribe = 'topic'\) after the table"):
        jobs.sql(f"SELECT * FROM {given}")
    columns = "(cast('1' as binary), cast('2' as binary), 'a topic', 0, 0L, now(), 0)"
    with pytest.raises(PySparkException, match=r"WITH \(`kafka.bootstrap.servers` = 'host:9092'\) after the table"):
        jobs.sql(f"INSERT INTO {given} VALUES {columns}")
    assert len(jobs.sql(f"SELECT * FROM {given} {jobs.in_sql}")) == 1
    jobs.sql(f"CREATE TABLE {plain} (key string, value string) USING `eos-kafka`")
    jobs.sql(f"INSERT INTO {plain} {jobs.in_sql} VALUES ('2', 'b')")
    with pytest.raises(PySparkException, match="fixed schema"):
        jobs.sql(f"SELECT * FROM {plain} {jobs.in_sql}")
    with pytest.raises(PySparkException, match="kafka.bootstrap.servers"):
        jobs.row.write.options(**jobs.options).insertInto(plain)
    jobs.row.writeTo(plain).options(**jobs.options).append()
    assert jobs.topic.values() == ["a", "a", "b"]


def test_view_keeps_its_options_and_its_first_offsets(jobs: Jobs) -> None:
    jobs.write()
    view, options = f"{jobs.tables}view", jobs.in_sql.removeprefix("WITH ").replace(" = ", " ")
    create = f"CREATE OR REPLACE TEMPORARY VIEW {view} USING `eos-kafka` OPTIONS {options}"
    jobs.sql(create)
    assert len(jobs.sql(f"SELECT * FROM {view}")) == 1
    jobs.write()
    jobs.sql(f"REFRESH TABLE {view}")
    assert len(jobs.sql(f"SELECT * FROM {view}")) == 1
    jobs.sql(create)
    assert len(jobs.sql(f"SELECT * FROM {view}")) == 2


def test_static_side_of_a_stream_keeps_its_first_offsets(jobs: Jobs) -> None:
    jobs.write()
    static = jobs.spark.read.format("eos-kafka").options(**jobs.options).load()
    stream = jobs.spark.readStream.format("eos-kafka").options(**jobs.options).load()
    counts: list[int] = []
    writer = stream.join(static, "value").writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
    query = writer.option("checkpointLocation", str(jobs.folder)).start()
    query.processAllAvailable()
    jobs.write()
    query.processAllAvailable()
    query.stop()
    assert counts == [1, 1], "a static side that is looked up again has 1 and 2"


def test_stream_into_a_table_writes_once(jobs: Jobs) -> None:
    jobs.write()
    name = f"{jobs.tables}stream"
    jobs.sql(f"CREATE TABLE {name} USING `eos-kafka`")
    jobs.stream_to_table(name)
    assert jobs.topic.values() == ["a", "a"] and jobs.spark.catalog.tableExists(f"{name}_out")


def test_new_table_gets_no_rows_but_the_topic(jobs: Jobs) -> None:
    saved, created, selected = (f"{jobs.tables}{name}" for name in ("saved", "created", "selected"))
    writer = jobs.row.write.format("eos-kafka").options(**jobs.options)
    writer.mode("append").saveAsTable(saved)
    jobs.row.writeTo(created).using("eos-kafka").options(**jobs.options).create()
    options = jobs.in_sql.removeprefix("WITH ").replace(" = ", " ")
    with pytest.raises(PySparkException, match=r"Option 'kafka.bootstrap.servers' must be specified"):
        jobs.sql(f"CREATE TABLE {selected} USING `eos-kafka` OPTIONS {options} AS SELECT 'b' AS value")
    tables = jobs.spark.catalog
    assert [tables.tableExists(each) for each in (saved, created, selected)] == [True, True, False]
    with pytest.raises(PySparkException, match="Save mode Overwrite"):
        writer.mode("overwrite").saveAsTable(saved)
    assert not tables.tableExists(saved)
    assert jobs.topic.values() == ["a", "a"]


@pytest.mark.parametrize(
    ("call", "option"),
    [("read", "failOnDataLoss"), ("write", "transactionTimeout"), ("stream", "failOnDataLoss")],
)
def test_first_line_of_an_error_is_its_message(jobs: Jobs, call: str, option: str) -> None:
    jobs.options[option] = "never"
    with pytest.raises(PySparkException) as raised:
        getattr(jobs, call)()
    assert OWN_ERROR in str(raised.value).splitlines()[0] and "Traceback" not in str(raised.value)


def test_error_of_a_task_has_no_frames_of_python(jobs: Jobs) -> None:
    rows = jobs.row.selectExpr("value", "99 AS partition")
    with pytest.raises(PySparkException) as raised:
        rows.write.format("eos-kafka").mode("append").options(**jobs.topic.options()).save()
    assert "partitioning.DataError: The column" in str(raised.value).splitlines()[1] and "Traceback" not in str(
        raised.value
    )
