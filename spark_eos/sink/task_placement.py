"""The placement of a DataFrame's rows in tasks before a write, so that few tasks write to one partition.

The sink still chooses the partition of each row, with the same functions. So a placement that does not fit, because
the topic has grown or rows were added after it, costs markers and never correctness.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import StructType

from spark_eos.codec.columns import texts_of
from spark_eos.column_libraries import check_column_libraries
from spark_eos.errors import OptionError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import exclusive_state, process_state
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.sink import columns
from spark_eos.sink.columns import check_columns
from spark_eos.sink.dataframe_writes import option_texts
from spark_eos.sink.process_cache import client_of
from spark_eos.sink.task.partitioning import Ids, given_or_by_key, given_partitions
from spark_eos.worker_memory import spare_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_eos.options.write_options import WriteOptions

# More hide an uneven distribution, and each costs some milliseconds.
_TASKS_OF_A_CORE: Final = 4


def place_by_partition(
    frame: "DataFrame",
    tasks: int | None = None,
    *,
    topics: Collection[str] = (),
    partitions: int | None = None,
    **options: "Unpack[WriteOptions]",
) -> "DataFrame":
    """Return the DataFrame with the rows of each Kafka partition in one task; write it with the same options.

    Rows with keys go to all partitions of a topic, and each task's transaction writes a marker to each partition that
    it touches: tasks times partitions markers. With this placement there are as many markers as partitions. It costs
    one shuffle of the rows, and pays for many tasks and many partitions.

    - `frame`: batch or streaming, with the sink's columns; `key` or `partition` must be among them. The result has the
      same columns and rows. Use it with `spark_eos.write`, `write`, `writeStream` and in a `foreachBatch` function.
    - `tasks`: the tasks of the result, 1 or more. The default is one for each partition, at most four for each core
      (`spark.default.parallelism`; a session of Spark Connect does not tell it) and at most
      `spark.sql.shuffle.partitions`. Name it if the cluster grows while a query runs. With twice as many tasks as
      partitions or more, the keys of a partition are divided over several tasks. Before Spark 4.1 some tasks get no
      rows, and others the rows of several partitions.
    - `topics`: the topics that rows name in their column `topic`, if the option `topic` is not set. Rows are then
      placed by topic and partition; rows of other topics are spread over all tasks by key.
    - `partitions`: how many partitions each topic has. By default one request to the cluster finds out, when the
      function is called: a streaming query that runs while a topic grows writes more markers until its next start.
    - `options`: the options of the write. Only `topic` and the settings of the connection matter.

    A row's partition is the same with and without this function: the column `partition`, or else murmur2 of the key's
    bytes modulo the number of partitions, as in Kafka's DefaultPartitioner. Rows with neither are spread over the tasks
    by their value; each task writes them to few partitions (KIP-480, KIP-794).

    The rows of a key are in one task, unless they name partitions. Spark promises no order after a shuffle. In a batch
    job or in `foreachBatch`, call `sortWithinPartitions` on the result if the order matters.

    Raises `OptionError` for an option that the sink refuses, such as another partitioner, and if there is nothing to
    place rows by; `TopicError` if a topic does not exist; `UnreachableError` if no broker responds.

    >>> import spark_eos
    >>> from broker_core import EmbeddedBroker
    >>> rows = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    >>> with EmbeddedBroker(topics={"lines": 3}) as kafka:
    ...     options = {"topic": "lines", "kafka.bootstrap.servers": kafka.bootstrap_servers}
    ...     spark_eos.write(spark_eos.place_by_partition(rows, 3, **options), **options)
    ...     written = kafka.records("lines", control=True)
    ...     len(kafka.records("lines")), sum(record.marker is not None for record in written)
    (100, 3)
    """
    check_column_libraries()
    texts = option_texts(options)
    parsed = sink_options(texts)
    check_placeable(frame.schema, parsed, topics, tasks, partitions)
    counts = _partition_counts(texts, parsed, topics, partitions)
    total = sum(counts.values())
    if tasks is None:
        tasks = default_tasks(frame.sparkSession, total)
    used = [columns.TOPIC] if parsed.topic is None else []
    used += [name for name in (columns.PARTITION, columns.KEY) if name in frame.schema.names]
    place = _place(frame, Slots(counts, max(1, tasks // total), parsed.topic, used))
    # New in Spark 4.1. Spark's hash of the place puts rows of one place in one task, too, but fills tasks unevenly.
    repartition: Any = getattr(frame, "repartitionById", frame.repartition)
    placed: DataFrame = repartition(tasks, place)
    return placed


def check_placeable(
    schema: StructType, options: SinkOptions, topics: Collection[str], tasks: int | None, partitions: int | None
) -> None:
    check_columns(schema, options.topic)
    if columns.KEY not in schema.names and columns.PARTITION not in schema.names:
        raise OptionError(
            "The DataFrame has no column 'key' or 'partition' to place rows by",
            checked=f"The columns are {', '.join(schema.names)}",
            remedy="Write it as it is: each task writes rows without keys to few partitions",
        )
    if isinstance(topics, str):
        raise OptionError(
            f"Argument 'topics' is the text {topics!r}", remedy="Pass a list, as in topics=['orders', 'payments']"
        )
    if options.topic is not None and topics:
        raise OptionError(
            "place_by_partition got both 'topic' and 'topics'",
            remedy="Keep the option 'topic' if all rows go there, or 'topics' if the column 'topic' names the topics",
        )
    if options.topic is None and not topics:
        raise OptionError(
            "The rows name their topics in a column, and the argument 'topics' is empty",
            remedy="Pass the topics, as in topics=['orders', 'payments'], or set the option 'topic'",
        )
    for name, number in (("tasks", tasks), ("partitions", partitions)):
        if number is not None and number < 1:
            raise OptionError(f"Argument '{name}' is {number}", remedy="Use 1 or more, or leave it out")


def default_tasks(session: Any, partitions: int) -> int:
    """Return how many tasks share so many partitions.

    A shuffle writes a block for each pair of a task before and a task after it, and each task has a transaction.
    """
    limits = [partitions]
    shuffled = str(session.conf.get("spark.sql.shuffle.partitions"))
    # On Databricks it may be `auto`.
    if shuffled.isdigit():
        limits.append(int(shuffled))
    # A session of Spark Connect has none.
    if (context := getattr(session, "sparkContext", None)) is not None:
        limits.append(_TASKS_OF_A_CORE * context.defaultParallelism)
    return min(limits)


def _partition_counts(
    texts: Mapping[str, str], options: SinkOptions, topics: Collection[str], partitions: int | None
) -> dict[str, int]:
    names = [options.topic] if options.topic is not None else sorted(topics)
    if partitions is not None:
        return dict.fromkeys(names, partitions)
    with exclusive_state(repr(texts)):
        found = client_of(process_state(), options.client).require_topics(names, need_leaders=False)
    return {name: found[name].partition_count for name in names}


def _place(frame: "DataFrame", slots: "Slots") -> Any:
    # An array of pandas has no null of an integer.
    given = {name: frame[name] for name in slots.names}
    if columns.PARTITION in given:
        given[columns.PARTITION] = functions.coalesce(given[columns.PARTITION], functions.lit(-1))
    untyped: Any = functions
    # New in Spark 4.1.
    make = getattr(untyped, "arrow_udf", untyped.pandas_udf)
    determined = make(lambda *arrays: slots(arrays), "int")(*given.values())
    # The same place whenever a task is run again: a random one could lose rows or write them twice.
    spread = functions.pmod(functions.xxhash64(frame[columns.VALUE]), functions.lit(slots.count)).cast("int")
    return functions.when(determined >= 0, determined).otherwise(spread)


class Slots(SentToTasks):
    """The places of rows: `share` for each partition of each topic; `count` of them.

    Calling it with columns of Arrow or pandas returns the place of each row, or -1 if the row may go to any
    partition. `names` are the columns' names. `topic` is None if a column names it.
    """

    def __init__(self, counts: Mapping[str, int], share: int, topic: str | None, names: Sequence[str]) -> None:
        self.names = names
        self.count = share * sum(counts.values())
        self._topic = topic
        self._sizes = {name: share * count for name, count in counts.items()}

    def __call__(self, arrays: Sequence[Any]) -> Any:
        if self.is_received:
            spare_modules(process_state())
        rows = pa.RecordBatch.from_arrays([pa.array(array, from_pandas=True) for array in arrays], self.names)
        first, size = self._ranges(rows)
        # Modulo a multiple of the number of partitions: keys of one place have one partition.
        chosen = given_or_by_key(rows, given_partitions(rows), size)
        places = np.where(chosen < 0, -1, first + chosen % size).astype(np.int32)
        return pa.array(places) if isinstance(arrays[0], pa.Array) else type(arrays[0])(places)

    def _ranges(self, rows: pa.RecordBatch) -> tuple[int | Ids, int | Ids]:
        if self._topic is not None:
            return 0, self._sizes[self._topic]
        firsts = dict(zip(self._sizes, np.cumsum([0, *self._sizes.values()]).tolist(), strict=False))
        topics = rows.column(columns.TOPIC).dictionary_encode()
        # The last entry is for rows without a topic, which the sink refuses.
        names = [*texts_of(topics.dictionary, columns.TOPIC), ""]
        indices = topics.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
        ranges = np.array([(firsts.get(name, 0), self._sizes.get(name, self.count)) for name in names], np.int64)
        first, size = ranges[indices].T
        return first, size
