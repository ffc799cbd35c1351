"""Tables laid out exactly as by Kafka's own tools, and the same rows for programs.

Each cell is padded to the widest of its column, counted in Java's characters, and followed by a tab, including the last
one; so scripts that read the output of `kafka-transactions.sh` can read this. Table libraries count terminal columns
instead, and put separators between the columns or on both sides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_eos.admin.terminal import PLAIN, Painter, Style
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.inspection import TransactionDescription, TransactionListing
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line, printable
from spark_eos.transactions.findings import MINUTE_MS, VERDICT_WORDS, HangingFinding, HangingVerdict

LIST_HEADS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCERS_HEADS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_HEADS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
LIST_COLUMNS: Final = ("transactional_id", "coordinator_id", "producer_id", "state")
PRODUCERS_COLUMNS: Final = (
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp_ms",
    "start_offset",
)
FINDING_COLUMNS: Final = (
    "topic",
    "partition",
    *PRODUCERS_COLUMNS,
    "duration_minutes",
    "hanging",
    "verdict",
    "transactional_id",
    "state",
    "partition_says",
    "coordinator_says",
    "why",
    "command",
)
_NONE: Final = "None"
VERDICT_STYLES: Final[Mapping[HangingVerdict, tuple[Style, ...]]] = {
    HangingVerdict.HANGING: (Style.RED, Style.BOLD),
    HangingVerdict.LIVE: (Style.GREEN,),
    HangingVerdict.ENDED: (),
    HangingVerdict.UNKNOWN: (Style.YELLOW,),
}


def kafka_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    r"""Lay rows out as Kafka's tools do; every line but the last ends with a line feed.

    >>> kafka_table(["Id", "State"], [["long-id", "Empty"]])
    'Id     \tState\t\nlong-id\tEmpty\t'
    """
    lines = [[one_line(str(cell)) for cell in row] for row in (heads, *rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "".join(cell + " " * (width - _width(cell)) + "\t" for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _width(text: str) -> int:
    """Return the width as Java counts it, in UTF-16: a character beyond the first 65,536 counts as two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def list_rows(listed: Mapping[int, Sequence[TransactionListing]]) -> list[tuple[object, ...]]:
    """Return one row for each transactional id."""
    return [
        (each.transactional_id, node, each.producer_id, each.state)
        for node, listings in listed.items()
        for each in listings
    ]


def list_document(listed: Mapping[int, Sequence[TransactionListing]]) -> list[dict[str, Any]]:
    """Return one object for each transactional id."""
    return [
        {"transactional_id": name, "coordinator_id": node, "producer_id": producer_id, "state": state}
        for name, node, producer_id, state in list_rows(listed)
    ]


def describe_row(node: int, each: TransactionDescription, now_ms: int) -> tuple[object, ...]:
    """Return the row of one transactional id."""
    is_started = each.start_time_ms >= 0
    return (
        node,
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.state,
        each.transaction_timeout_ms,
        each.start_time_ms if is_started else _NONE,
        now_ms - each.start_time_ms if is_started else _NONE,
        ",".join(map(str, each.topic_partitions)),
    )


def describe_document(node: int, each: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """Return the same as one object."""
    is_started = each.start_time_ms >= 0
    return {
        "coordinator_id": node,
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "state": each.state,
        "transaction_timeout_ms": each.transaction_timeout_ms,
        "start_time_ms": each.start_time_ms if is_started else None,
        "duration_ms": now_ms - each.start_time_ms if is_started else None,
        "topic_partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in each.topic_partitions],
    }


def producer_rows(producers: Sequence[ActiveProducer]) -> list[tuple[object, ...]]:
    """Return one row for each producer of a partition."""
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.first_offset if each.is_in_transaction else _NONE,
        )
        for each in producers
    ]


def producers_document(producers: Sequence[ActiveProducer]) -> list[dict[str, Any]]:
    """Return one object for each producer of a partition."""
    return [producer_document(each) for each in producers]


def producer_document(each: ActiveProducer) -> dict[str, Any]:
    """Return one object for a producer."""
    return {
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "last_sequence": each.last_sequence,
        "last_timestamp_ms": each.last_timestamp_ms,
        "start_offset": each.first_offset if each.is_in_transaction else None,
    }


def hanging_rows(hanging: Sequence[HangingFinding], now_ms: int) -> list[tuple[object, ...]]:
    """Return one row for each transaction that hangs; as in Kafka's tool, its duration is the last record's age."""
    return [
        (
            each.transaction.topic_partition.topic,
            each.transaction.topic_partition.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.first_offset,
            producer.last_timestamp_ms,
            _NONE if (idle_ms := each.transaction.idle_ms(now_ms)) is None else idle_ms // MINUTE_MS,
        )
        for each in hanging
        for producer in [each.transaction.producer]
    ]


def findings_document(
    findings: Sequence[HangingFinding], commands: OperatorCommands, now_ms: int
) -> list[dict[str, Any]]:
    """Return one object for each open transaction, hanging or not, with the reasons."""
    return [_finding(each, commands, now_ms) for each in findings]


def _finding(each: HangingFinding, commands: OperatorCommands, now_ms: int) -> dict[str, Any]:
    place, owner = each.transaction.topic_partition, each.owner
    return {
        "topic": place.topic,
        "partition": place.partition,
        **producer_document(each.transaction.producer),
        "duration_minutes": None if (age_ms := each.age_ms(now_ms)) is None else age_ms // MINUTE_MS,
        "hanging": each.hangs,
        "verdict": each.verdict.value,
        "partition_says": each.transaction.says(now_ms),
        "coordinator_says": each.coordinator_says,
        "why": each.why,
        "transactional_id": each.transactional_id,
        "state": owner.description.state if owner and owner.description.exists else None,
        "command": each.command(commands),
    }


def explanation(each: HangingFinding, commands: OperatorCommands, now_ms: int, painter: Painter = PLAIN) -> str:
    """Describe what was found about an open transaction and what ends it."""
    verdict = painter.paint(VERDICT_WORDS[each.verdict], *VERDICT_STYLES[each.verdict])
    lines = [
        f"{each.transaction.topic_partition} at offset {each.transaction.producer.first_offset}: {verdict}",
        f"  partition: {each.transaction.says(now_ms)}",
        f"  coordinator: {each.coordinator_says}",
        f"  so: {printable(each.why)}",
    ]
    advice = each.advice(commands)
    return "\n".join([*lines, f"  {printable(advice)}"] if advice else lines)
