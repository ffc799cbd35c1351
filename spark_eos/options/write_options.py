"""The options of `spark_eos.write` as a type."""

from typing import TypedDict

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
