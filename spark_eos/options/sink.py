"""The options of a writing query, parsed into a frozen record."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from broker_core.records.compression import Compression
from spark_eos.errors import OptionError
from spark_eos.options.catalog import (
    DECLARED,
    PRODUCER,
    SINK_OPTIONS,
    OptionDefinition,
    declared,
    option_text,
    option_value,
    setting_value,
)
from spark_eos.options.client import (
    ClientOptions,
    client_options_from,
    kafka_settings,
    refuse_platform_options,
    refuse_similar,
    refuse_without_prefix,
)
from spark_eos.options.metrics import MetricsTargets, metrics_targets

DEFAULT_PREFIX: Final = DECLARED["transactionalIdPrefix"].default
DEFAULT_DECISION_TOPIC: Final = DECLARED["decisionTopic"].default
FALLBACK_TIMEOUT_MS: Final = 60_000
LONGEST_DEFAULT_TIMEOUT_MS: Final = 900_000
MAX_NAME_BYTES: Final = 200
SMALLEST_TIMEOUT_MS: Final = 1_000
# Spelled as in users' code; Spark passes them in lower case.
NAMES: Final = tuple(each.name for each in SINK_OPTIONS)
_LEVELS: Final[Mapping[Compression, OptionDefinition]] = {
    codec: DECLARED[f"compression.{codec.name.lower()}.level"]
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
}
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
TOPIC_NAME_RULE: Final = "Use 1 to 249 letters, digits, dots, underscores or hyphens"
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h)?")
_UNIT_MS: Final[Mapping[str, int]] = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class OnLostTransaction(StrEnum):
    """What to do when some transactions of a decided micro-batch took no effect."""

    FAIL = "fail"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The settings of a sink; picklable, so that the driver and every task use the same.

    The preflight checks fill in what depends on the brokers: `transaction_timeout_ms`, which is None before;
    `timeout_limit_ms`, the most they allow, or None if it cannot be read; `allow_hanging_transactions`, which is False
    afterwards if all of them verify transactions; and for the tasks of the next micro-batch `partition_count`, how many
    partitions `topic` has, and `topic_id`, each None if only rows name topics or no broker responds; and `cluster_id`,
    None if brokers do not tell it.
    """

    client: ClientOptions
    topic: str | None = None
    prefix: str = declared("transactionalIdPrefix")
    transaction_timeout_ms: int | None = None
    on_lost_transaction: OnLostTransaction = OnLostTransaction.FAIL
    job_id: str | None = None
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    batch_bytes: int = declared("batch.size")
    buffer_bytes: int = declared("buffer.memory")
    max_request_bytes: int = declared("max.request.size")
    decision_topic: str = declared("decisionTopic")
    write_name: str | None = None
    discard_differing_rows: bool = declared("discardDifferingRows")
    allow_hanging_transactions: bool = declared("allowHangingTransactions")
    allow_decision_retention: bool = declared("allowDecisionRetention")
    timeout_limit_ms: int | None = None
    metrics: MetricsTargets | None = None
    partition_count: int | None = None
    topic_id: UUID | None = None
    cluster_id: str | None = None


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse all options of a writing query; names are case-insensitive, as everywhere in Spark."""
    ours = _own_options(options)
    kafka = kafka_settings(options, side=PRODUCER)
    compression, level_text = _compression(_either(ours, kafka, "compression.type"))
    return SinkOptions(
        client=client_options_from(kafka),
        topic=_topic(ours["topic"], "topic") if "topic" in ours else None,
        prefix=_name(option_text(ours, "transactionalIdPrefix"), "transactionalIdPrefix"),
        transaction_timeout_ms=_timeout(ours, kafka),
        on_lost_transaction=OnLostTransaction(option_value(ours, "onLostTransaction")),
        job_id=_name(ours["jobid"], "jobId") if "jobid" in ours else None,
        compression=compression,
        compression_level=_level(compression, level_text, ours, kafka),
        batch_bytes=_size(ours, kafka, "batch.size"),
        buffer_bytes=_size(ours, kafka, "buffer.memory"),
        max_request_bytes=setting_value(kafka, "max.request.size"),
        decision_topic=_topic(option_text(ours, "decisionTopic"), "decisionTopic"),
        write_name=_name(ours["writename"], "writeName") if "writename" in ours else None,
        discard_differing_rows=option_value(ours, "discardDifferingRows"),
        allow_hanging_transactions=option_value(ours, "allowHangingTransactions"),
        allow_decision_retention=option_value(ours, "allowDecisionRetention"),
        metrics=metrics_targets(ours),
    )


def _own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the sink's own options; refuse a name that is similar to one of them.

    Spark also passes its own options (checkpointLocation, path, ...), so an unknown name alone is no error.
    """
    refuse_platform_options(options)
    known = {name.lower(): name for name in NAMES}
    ours: dict[str, str] = {}
    for written, value in options.items():
        name = written.lower()
        if name in known:
            ours[name] = value
        elif not name.startswith("kafka."):
            refuse_similar(written, known, cutoff=0.8)
    refuse_without_prefix(options)
    return ours


def _either(ours: Mapping[str, str], kafka: Mapping[str, str], name: str) -> str | None:
    if name in ours and name in kafka and ours[name] != kafka[name]:
        raise OptionError(f"Options '{name}' and 'kafka.{name}' contradict each other", remedy="Keep one of the two")
    return ours.get(name, kafka.get(name))


def is_topic_name(text: str) -> bool:
    return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")


def _topic(text: str, option: str) -> str:
    topic = text.strip()
    if not is_topic_name(topic):
        raise OptionError(f"Option '{option}' is {text!r}", remedy=TOPIC_NAME_RULE)
    return topic


def _name(text: str, option: str) -> str:
    size_bytes = len(text.encode(errors="replace"))
    # A space more would silently be another name, under which a job that ran before writes its rows again.
    if not 0 < size_bytes <= MAX_NAME_BYTES or not text.isprintable() or text != text.strip():
        raise OptionError(
            f"Option '{option}' is {text[:80]!r} ({size_bytes} bytes)",
            remedy=f"Use 1 to {MAX_NAME_BYTES} bytes without control characters, and no space at either end. "
            "A job that ran under a name with a space is another one: see `eos-kafka decisions list` before you run it "
            "without",
        )
    return text


def _compression(text: str | None) -> tuple[Compression, str | None]:
    """Parse a codec, with the level that may follow it after a colon."""
    name, colon, level = (text or DECLARED["compression.type"].default).strip().lower().partition(":")
    try:
        return Compression[{"uncompressed": "NONE"}.get(name, name.upper())], level if colon else None
    except KeyError:
        raise OptionError(
            f"Option 'compression.type' is {text!r}", remedy="Use none, gzip, snappy, lz4 or zstd"
        ) from None


def _level(
    compression: Compression, beside: str | None, ours: Mapping[str, str], kafka: Mapping[str, str]
) -> int | None:
    text = ours.get("compression.level", kafka.get("compression.level"))
    # The codec's own level is -1 for librdkafka, and for Java's gzip; Java's zstd has a level of this number.
    if text is None or text.strip() == "-1":
        text = kafka.get(f"compression.{compression.name.lower()}.level")
    if text is not None and beside is not None and text.strip() != beside:
        raise OptionError(
            f"Options 'compression.type' and 'compression.level' set different levels, {beside} and {text}",
            remedy="Keep one of the two",
        )
    text = beside if text is None else text
    if text is None or (text.strip() == "-1" and compression is Compression.GZIP):
        return None
    if compression not in _LEVELS:
        raise OptionError(
            f"Option 'compression.level' has no effect with compression.type={compression.name.lower()}",
            remedy="Remove it, or use gzip, lz4 or zstd",
        )
    return int(_LEVELS[compression].parse(text, "compression.level"))


def _timeout(ours: Mapping[str, str], kafka: Mapping[str, str]) -> int | None:
    text = ours.get("transactiontimeout", kafka.get("transaction.timeout.ms"))
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip().lower())
    timeout_ms = int(found[1]) * _UNIT_MS[found[2] or "ms"] if found else -1
    if not SMALLEST_TIMEOUT_MS <= timeout_ms <= 2**31 - 1:
        raise OptionError(
            f"Option 'transactionTimeout' is {text!r}",
            remedy=f"Use milliseconds from {SMALLEST_TIMEOUT_MS} to {2**31 - 1}, or a number with ms, s, m or h",
        )
    return timeout_ms


def _size(ours: Mapping[str, str], kafka: Mapping[str, str], name: str) -> int:
    text = _either(ours, kafka, name)
    return int(DECLARED[name].parse(DECLARED[name].default if text is None else text, name))
