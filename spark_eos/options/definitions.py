"""The options of sink and source as the documentation describes them: names, meanings, defaults and values.

The tables in docs/reference are generated from this file, and tests hold the parsers to it.
"""

from typing import Final, NamedTuple, TypedDict

_INT_MAX: Final = 2**31 - 1


class OptionDefinition(NamedTuple):
    """One option, its name spelled as users write it.

    `default` is the text that has the same effect as leaving the option out, or empty; `default_note` describes a
    default that is not one text. `choices` are all allowed values, `minimum` and `maximum` bound a number, and
    `values` describes what neither can say.
    """

    name: str
    meaning: str
    default: str = ""
    default_note: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    values: str = ""


_FLAG: Final = ("true", "false")
_METRICS: Final = (
    OptionDefinition(
        "metricsPort",
        "Serve the metrics of the session at this port of the driver. Needs the package `prometheus-client` there.",
        minimum=1,
        maximum=2**16 - 1,
    ),
    OptionDefinition(
        "metricsHost",
        "The address that the metrics endpoint listens on. Only with `metricsPort`.",
        default="127.0.0.1",
        values="a host name or an IP address",
    ),
    OptionDefinition(
        "metricsTextfile",
        "Write the metrics of the session to this file on the driver, for the textfile collector of node_exporter. "
        "Needs the package `prometheus-client` there.",
        values="an absolute path that ends with `.prom`",
    ),
    OptionDefinition(
        "metricsOtlpEndpoint",
        "Send the metrics of the session to this OpenTelemetry collector. Needs the extra `otlp` on the driver.",
        values="a URL such as `http://localhost:4318/v1/metrics`",
    ),
)

SINK_OPTIONS: Final = (
    OptionDefinition(
        "topic",
        "The topic that all rows are written to. It takes precedence over the column `topic`.",
        default_note="the column `topic`",
        values="a topic name",
    ),
    OptionDefinition(
        "transactionalIdPrefix",
        "The beginning of every transactional id, group and decision key of the sink. Access control lists name it.",
        default="eos-kafka",
        values="1 to 200 bytes without control characters",
    ),
    OptionDefinition(
        "transactionTimeout",
        "How long a transaction may stay open. It must exceed the longest micro-batch together with a restart.",
        default_note="the brokers' `transaction.max.timeout.ms`, at most 15 minutes; 60 s if it cannot be read",
        values=f"`1000` to `{_INT_MAX}` ms, or a number with `ms`, `s`, `m`, `min` or `h`",
    ),
    OptionDefinition(
        "onLostTransaction",
        "If a decided micro-batch was committed in part and the rest timed out: stop the query, or write the lost "
        "partitions again. `rewrite` requires a deterministic query.",
        default="fail",
        choices=("fail", "rewrite"),
    ),
    OptionDefinition(
        "jobId",
        "Batch jobs only: the name of the job. A job that runs again with the same name and rows writes nothing twice.",
        default_note="random",
        values="1 to 200 bytes without control characters",
    ),
    OptionDefinition(
        "writeName",
        "`foreachBatch` only: the name of this write, if the function writes more than once to one topic.",
        default_note="the topic",
        values="1 to 200 bytes without control characters",
    ),
    OptionDefinition(
        "discardDifferingRows",
        "If a decided micro-batch or job runs again with other rows, but as many: discard them (`true`) or stop "
        "(`false`). Another number of rows always stops it.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "decisionTopic",
        "The compacted topic for the decisions. The sink creates it if it is missing and the principal may.",
        default="eos-kafka-decisions",
        values="a topic name",
    ),
    OptionDefinition(
        "allowHangingTransactions",
        "Accept brokers that do not verify transactions; a late write can then leave a hanging transaction.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "allowDecisionRetention",
        "Accept a decision topic that deletes decisions after a time. A query that stops for longer can repeat a "
        "micro-batch.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "compression.type",
        "The codec of record batches, as `codec` or `codec:level`. Also `kafka.compression.type`.",
        default="none",
        choices=("none", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    OptionDefinition(
        "compression.level",
        "The level of the codec. Also `kafka.compression.level`, or `kafka.compression.zstd.level` and the like.",
        default_note="the codec's own",
        values="gzip: `1` to `9`; lz4: `1` to `12`; zstd: `1` to `22`",
    ),
    OptionDefinition(
        "batch.size",
        "The largest record batch before compression. Also `kafka.batch.size`.",
        default="524288",
        unit="bytes",
        minimum=1,
        maximum=_INT_MAX,
    ),
    OptionDefinition(
        "buffer.memory",
        "How much a task buffers, half of it in open batches and half in requests. Also `kafka.buffer.memory`.",
        default="67108864",
        unit="bytes",
        minimum=65_536,
        maximum=_INT_MAX,
    ),
    OptionDefinition(
        "includeHeaders",
        "Accepted for compatibility and without effect: the sink writes the column `headers` whenever there is one.",
        values="any",
    ),
    *_METRICS,
)

WriteOptions = TypedDict(
    "WriteOptions",
    {
        "kafka.bootstrap.servers": str | None,
        "topic": str | None,
        "transactionalIdPrefix": str | None,
        "transactionTimeout": int | str | None,
        "onLostTransaction": str | None,
        "jobId": str | None,
        "writeName": str | None,
        "discardDifferingRows": bool | str | None,
        "decisionTopic": str | None,
        "allowHangingTransactions": bool | str | None,
        "allowDecisionRetention": bool | str | None,
        "compression.type": str | None,
        "compression.level": int | str | None,
        "batch.size": int | str | None,
        "buffer.memory": int | str | None,
        "includeHeaders": bool | str | None,
        "metricsPort": int | str | None,
        "metricsHost": str | None,
        "metricsTextfile": str | None,
        "metricsOtlpEndpoint": str | None,
    },
    total=False,
)
"""The options of `spark_eos.write` for type checkers.

Each may be text, as Spark passes it on, so that settings from a file fit; None counts as not set. Other `kafka.*`
settings are passed in a dictionary of their own.
"""

SOURCE_OPTIONS: Final = (
    OptionDefinition(
        "subscribe",
        "The topics to read. Exactly one of `subscribe`, `subscribePattern` and `assign` is required.",
        values="topic names, separated by commas",
    ),
    OptionDefinition(
        "subscribePattern",
        "Read all topics whose whole name matches. Topics that are created later are included.",
        values="a regular expression of Python",
    ),
    OptionDefinition("assign", "Read exactly these partitions.", values='JSON: `{"topic": [0, 1]}`'),
    OptionDefinition(
        "startingTimestamp",
        "Start at the first record of each partition that is not older than this. The next two options yield to it.",
        unit="ms since 1970-01-01 UTC",
        minimum=0,
    ),
    OptionDefinition(
        "startingOffsetsByTimestamp",
        "The same with a time for each partition. It takes precedence over `startingOffsets`.",
        unit="ms since 1970-01-01 UTC",
        values='JSON: `{"topic": {"0": 1700000000000}}`',
    ),
    OptionDefinition(
        "startingOffsets",
        "Where a new query starts. A restarted query continues from its checkpoint.",
        default_note="`latest` (stream), `earliest` (batch)",
        values='`earliest`, `latest`, or JSON: `{"topic": {"0": 23, "1": -2}}`, where -1 is latest and -2 is earliest',
    ),
    OptionDefinition(
        "startingOffsetsByTimestampStrategy",
        "If a partition has no record as new as the starting time: fail, or start at its end.",
        default="error",
        choices=("error", "latest"),
    ),
    OptionDefinition(
        "endingTimestamp",
        "Batch only: end before the first record of each partition that is not older than this.",
        unit="ms since 1970-01-01 UTC",
        minimum=0,
    ),
    OptionDefinition(
        "endingOffsetsByTimestamp",
        "Batch only: the same with a time for each partition.",
        unit="ms since 1970-01-01 UTC",
        values='JSON: `{"topic": {"0": 1700000000000}}`',
    ),
    OptionDefinition(
        "endingOffsets",
        "Batch only: where to end, never beyond the last stable offset when reading at `read_committed`.",
        default_note="`latest`",
        values='`latest`, or JSON: `{"topic": {"0": 50, "1": -1}}`, where -1 is latest',
    ),
    OptionDefinition(
        "isolation.level",
        "Whether to read committed records only. Also `kafka.isolation.level`. Spark's own default is "
        "`read_uncommitted`.",
        default="read_committed",
        choices=("read_committed", "read_uncommitted"),
    ),
    OptionDefinition(
        "failOnDataLoss",
        "If records are gone (deleted, truncated, or the topic was recreated): fail, or log a warning and continue.",
        default="true",
        choices=_FLAG,
    ),
    OptionDefinition(
        "maxOffsetsPerTrigger", "The most offsets in one micro-batch. Streams only.", default_note="no limit", minimum=1
    ),
    OptionDefinition(
        "minOffsetsPerTrigger",
        "Wait until so many new offsets are available, at most `maxTriggerDelay`. Streams only.",
        default_note="no minimum",
        minimum=1,
    ),
    OptionDefinition(
        "maxTriggerDelay",
        "The longest wait for `minOffsetsPerTrigger`.",
        default="15m",
        values="a number with `us`, `ms`, `s`, `m`, `min`, `h` or `d`; without a unit, ms",
    ),
    OptionDefinition(
        "minPartitions",
        "Split large offset ranges until there are about so many Spark partitions.",
        default_note="one for each Kafka partition",
        minimum=1,
    ),
    OptionDefinition(
        "maxRecordsPerPartition",
        "Split offset ranges so that no Spark partition has more offsets than this.",
        default_note="no limit",
        minimum=1,
    ),
    OptionDefinition(
        "includeHeaders",
        "Add the column `headers`, which is null for a record without headers.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "commitOffsetsToGroup",
        "Commit progress to a consumer group, for lag tools. The query never reads it back. Streams only.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "groupIdPrefix",
        "The beginning of that group's name, if `kafka.group.id` is not given.",
        values="any text",
    ),
    OptionDefinition(
        "filterPushdown",
        "Plan a batch read by its filters on topic, partition, offset and timestamp. Use the DataFrame in one query "
        "only.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "lagWarningAfter",
        "Warn when the last stable offset of a partition stands still this long, with the transaction that holds it.",
        default="1m",
        values="a number with `us`, `ms`, `s`, `m`, `min`, `h` or `d`; without a unit, ms",
    ),
    OptionDefinition(
        "logLag",
        "Log the lag of every partition with each micro-batch, on the driver's standard error.",
        default="false",
        choices=_FLAG,
    ),
    OptionDefinition(
        "outageTimeout",
        "How long the driver of a running stream waits for brokers that do not respond, before the query stops. "
        "It logs what it waits for. Streams only.",
        default="1h",
        values="a number with `us`, `ms`, `s`, `m`, `min`, `h` or `d`; without a unit, ms",
    ),
    OptionDefinition(
        "kafkaConsumer.pollTimeoutMs",
        "How long a task waits for progress in its partition before it fails.",
        default="120000",
        unit="ms",
        minimum=1,
    ),
    OptionDefinition(
        "fetchOffset.numRetries",
        "How often the driver asks again if a broker returns an end that is before an earlier one.",
        default="3",
        minimum=1,
    ),
    OptionDefinition(
        "fetchOffset.retryIntervalMs",
        "The wait between these attempts.",
        default="10",
        unit="ms",
        minimum=0,
    ),
    *_METRICS,
    OptionDefinition(
        "metricsQuery",
        "The label `query` of this source's metrics. Spark does not say which query a source belongs to.",
        default="",
        default_note="empty",
        values="any",
    ),
)
