"""Tables laid out exactly as by Kafka's own tools, and the same rows for programs.

Each cell is padded to the widest of its column, counted in Java's characters, and followed by a tab, including the last
one; so scripts that read the output of `kafka-transactions.sh` can read this. Table libraries count terminal columns
instead, and put separators between the columns or on both sides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from spark_eos.admin.terminal import PLAIN, Painter, Style
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.inspection import TransactionDescription, TransactionListing
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line, printable
from spark_eos.transactions.findings import MINUTE_MS, VERDICT_WORDS, HangingFinding, HangingVerdict

# The columns of each table: their names in JSON and CSV, with Kafka's heads.
LIST: Final = {
    "transactional_id": "TransactionalId",
    "coordinator_id": "Coordinator",
    "producer_id": "ProducerId",
    "state": "TransactionState",
}
DESCRIBE: Final = {
    "coordinator_id": "CoordinatorId",
    "transactional_id": "TransactionalId",
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "state": "TransactionState",
    "transaction_timeout_ms": "TransactionTimeoutMs",
    "start_time_ms": "CurrentTransactionStartTimeMs",
    "duration_ms": "TransactionDurationMs",
    "topic_partitions": "TopicPartitions",
}
PRODUCERS: Final = {
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "coordinator_epoch": "LatestCoordinatorEpoch",
    "last_sequence": "LastSequence",
    "last_timestamp_ms": "LastTimestamp",
    "start_offset": "CurrentTransactionStartOffset",
}
HANGING: Final = {
    "topic": "Topic",
    "partition": "Partition",
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "coordinator_epoch": "CoordinatorEpoch",
    "start_offset": "StartOffset",
    "last_timestamp_ms": "LastTimestamp",
    "idle_minutes": "Duration(min)",
}
FINDING_COLUMNS: Final = (
    *("topic", "partition", *PRODUCERS, "duration_minutes", "hanging", "verdict", "transactional_id", "state"),
    *("partition_says", "coordinator_says", "why", "command"),
)
VERDICT_STYLES: Final[Mapping[HangingVerdict, tuple[Style, ...]]] = {
    HangingVerdict.HANGING: (Style.RED, Style.BOLD),
    HangingVerdict.LIVE: (Style.GREEN,),
    HangingVerdict.ENDED: (),
    HangingVerdict.UNKNOWN: (Style.YELLOW,),
}


def kafka_table(columns: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""Lay rows out as Kafka's tools do; every line but the last ends with a line feed.

    >>> kafka_table({"id": "Id", "state": "State"}, [{"id": "long-id", "state": None}])
    'Id     \tState\t\nlong-id\tNone \t'
    """
    lines = [[one_line(str(row[name])) for name in columns] for row in ({**columns}, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "".join(cell + " " * (width - _width(cell)) + "\t" for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _width(text: str) -> int:
    """Return the width as Java counts it, in UTF-16: a character beyond the first 65,536 counts as two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def list_document(listed: Mapping[int, Sequence[TransactionListing]]) -> list[dict[str, Any]]:
    return [{"coordinator_id": node, **asdict(each)} for node, listings in listed.items() for each in listings]


def describe_document(node: int, each: TransactionDescription, now_ms: int) -> dict[str, Any]:
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


def producer_document(each: ActiveProducer) -> dict[str, Any]:
    return {
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "last_sequence": each.last_sequence,
        "last_timestamp_ms": each.last_timestamp_ms,
        "start_offset": each.first_offset if each.is_in_transaction else None,
    }


def finding_document(each: HangingFinding, commands: OperatorCommands, now_ms: int) -> dict[str, Any]:
    """Return one object for an open transaction, hanging or not, with the reasons."""
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


def hanging_row(each: HangingFinding, commands: OperatorCommands, now_ms: int) -> dict[str, Any]:
    """Return the row of Kafka's table, in which the duration is the last record's age."""
    idle_ms = each.transaction.idle_ms(now_ms)
    return {**finding_document(each, commands, now_ms), "idle_minutes": idle_ms and idle_ms // MINUTE_MS}


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
