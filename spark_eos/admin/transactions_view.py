"""What brokers know of transactions, and which of them hang."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from broker_core.errors import ErrorCode
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition, counted
from spark_eos.admin.output import PLAIN, TABLE, ExitCode, Painter, Style, progress, say, write
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.error_table import code_name
from spark_eos.client.inspection import (
    SEE_EVERY_ID,
    TransactionDescription,
    TransactionListing,
    describe_transactions,
    list_by_broker,
    sees_every_id,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import ActiveProducer, ProducerScan, unreadable_text
from spark_eos.client.transaction_admin import (
    all_topics,
    broker_ids,
    partitions_of,
    replicas_of,
    require_filters,
    sees_every_topic,
)
from spark_eos.errors import EosKafkaError, OptionError, TransactionError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line, printable
from spark_eos.transactions.findings import MINUTE_MS, VERDICT_WORDS, HangingFinding, HangingVerdict, possible_start
from spark_eos.transactions.judge import find_open, offline_coordinators, require_verdicts

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
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def list_document(listed: Iterable[TransactionListing]) -> list[dict[str, Any]]:
    # Without `asdict`, which copies: 10⁶ ids take 2 s instead of 9 s.
    return [{name: getattr(each, name) for name in LIST} for each in listed]


def describe_document(node: int, each: TransactionDescription, now_ms: int) -> dict[str, Any]:
    is_started = each.start_time_ms >= 0
    plain = ("transactional_id", "producer_id", "producer_epoch", "state", "transaction_timeout_ms")
    return {
        "coordinator_id": node,
        **{name: getattr(each, name) for name in plain},
        "start_time_ms": each.start_time_ms if is_started else None,
        "duration_ms": now_ms - each.start_time_ms if is_started else None,
        "topic_partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in each.topic_partitions],
    }


def producer_document(each: ActiveProducer) -> dict[str, Any]:
    named = {name: getattr(each, name) for name in PRODUCERS if name != "start_offset"}
    return {**named, "start_offset": each.first_offset if each.is_in_transaction else None}


def finding_document(each: HangingFinding, commands: OperatorCommands, now_ms: int) -> dict[str, Any]:
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
    verdict = painter.paint(VERDICT_WORDS[each.verdict], *VERDICT_STYLES[each.verdict])
    lines = [
        f"{each.transaction.topic_partition} at offset {each.transaction.producer.first_offset}: {verdict}",
        f"  partition: {each.transaction.says(now_ms)}",
        f"  coordinator: {each.coordinator_says}",
        f"  so: {printable(each.why)}",
    ]
    advice = each.advice(commands)
    return "\n".join([*lines, f"  {printable(advice)}"] if advice else lines)


def list_all(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    _require_broker(chosen.broker_id, client)
    duration_ms = chosen.duration_filter if chosen.duration_filter is not None and chosen.duration_filter >= 0 else None
    pattern = chosen.transactional_id_pattern
    try:
        require_filters(client, duration_ms, pattern)
        listed = list_by_broker(
            client, states=chosen.state, producer_ids=chosen.producer_id, duration_ms=duration_ms, id_pattern=pattern
        )
    except EosKafkaError as error:
        if error.error_code != ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise TransactionError(
            f"The pattern {pattern!r} is not a valid regular expression for Kafka",
            checked=f"A broker answered ListTransactions with {code_name(error.error_code)}",
            remedy="Use RE2 syntax, without lookaround and backreferences. The pattern must match the whole id; "
            "to match a prefix, append .*",
            error_code=error.error_code,
        ) from None
    _write_table(
        chosen, LIST, list_document(each for each in listed if chosen.broker_id in (None, each.coordinator_id))
    )
    if offline := offline_coordinators(client):
        numbers = ", ".join(map(str, sorted(offline)))
        say(f"The list lacks the ids in the partitions {numbers} of {TRANSACTION_STATE_TOPIC}, which have no leader.")
    elif not sees_every_id(client):
        say(f"The list contains only ids that the principal may DESCRIBE. {SEE_EVERY_ID} to see all.")
    return ExitCode.DONE


def describe(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    coordinator_id, found = described(client, chosen.transactional_id)
    document = describe_document(coordinator_id, found, now_ms)
    partitions = list(map(str, found.topic_partitions))
    text = kafka_table(DESCRIBE, [{**document, "topic_partitions": ",".join(partitions)}])
    write(chosen, text, document, list(document), [{**document, "topic_partitions": partitions}])
    if found.start_time_ms >= 0 and possible_start(found, now_ms) is None:
        say(f"The clocks of this machine and of broker {coordinator_id} differ, so the duration is wrong.")
    return ExitCode.DONE


def described(client: KafkaClient, transactional_id: str) -> tuple[int, TransactionDescription]:
    found = describe_transactions(client, [transactional_id])[transactional_id]
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise TransactionError(
            f"The transactional id {transactional_id!r} does not exist",
            checked=f"Its coordinator answered {code_name(found.error_code)}",
            remedy="List the existing ids with `eos-kafka transactions list`. An id that is unused for "
            "transactional.id.expiration.ms expires",
            error_code=found.error_code,
        )
    return client.find_coordinator(CoordinatorType.TRANSACTION, transactional_id), found


def describe_producers(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    _require_broker(chosen.broker_id, client)
    place = TopicPartition(chosen.topic, chosen.partition)
    _require_replica(chosen, client)
    producers = ProducerScan(client, chosen.broker_id).run([place])[place]
    _write_table(chosen, PRODUCERS, [producer_document(each) for each in producers])
    return ExitCode.DONE


def _write_table(chosen: argparse.Namespace, columns: Mapping[str, str], document: Sequence[Mapping[str, Any]]) -> None:
    write(chosen, kafka_table(columns, document), document, list(columns), document)


def find_hanging(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    """Find the hanging transactions in a scope, and give for each open one why it counts as hanging or not."""
    places = _scope(chosen, client)
    # One partition without a leader must not end the search of the others.
    unreadable: dict[TopicPartition, str] = {}
    with progress("Describing producers", color=chosen.color) as report:
        findings = find_open(
            client,
            places,
            chosen.broker_id,
            max_in_flight=chosen.max_in_flight,
            report=report,
            unreadable=unreadable if len(places) > 1 else None,
        )
    old = [each for each in findings if is_listed(each, chosen.max_transaction_timeout * MINUTE_MS, now_ms)]
    # A short transaction whose id is hidden is no reason to conceal one that hangs.
    require_verdicts(old)
    commands = commands_of(chosen)
    hanging, listed = ([each for each in found if each.hangs] for found in (findings, old))
    document = [finding_document(each, commands, now_ms) for each in findings]
    rows = [hanging_row(each, commands, now_ms) for each in listed]
    text = kafka_table(HANGING, rows)
    write(chosen, text, document, FINDING_COLUMNS, document)
    if chosen.output == TABLE:
        painter = Painter(sys.stderr, chosen.color)
        for each in findings if chosen.explain else hanging:
            say(explanation(each, commands, now_ms, painter))
    left = sum(each.verdict in (HangingVerdict.LIVE, HangingVerdict.UNKNOWN) for each in findings)
    say(
        f"Checked {counted(len(places) - len(unreadable), 'partition')}: "
        f"{counted(len(hanging), 'hanging transaction')}, {counted(left, 'other open one')}"
        + (" (use --explain for the reasons)." if left and not chosen.explain and chosen.output == TABLE else ".")
    )
    if len(listed) < len(hanging):
        say(
            f"The table leaves out {counted(len(hanging) - len(listed), 'hanging transaction')}: the last record is "
            f"not older than {chosen.max_transaction_timeout} min. Lower --max-transaction-timeout to list it."
        )
    if chosen.topic is None and not sees_every_topic(client):
        say("Only topics that the principal may DESCRIBE were searched. Grant the principal READ on all to search all.")
    if unreadable:
        say(unreadable_text(unreadable))
    if listed:
        return ExitCode.HANGING_FOUND
    return ExitCode.FAILED if unreadable else ExitCode.DONE


def is_listed(finding: HangingFinding, limit_ms: int, now_ms: int) -> bool:
    """Return whether Kafka's tool would list it, too; a record's time in the future says nothing, so it is listed."""
    idle_ms = finding.transaction.idle_ms(now_ms)
    return idle_ms is None or idle_ms > limit_ms


def commands_of(chosen: argparse.Namespace) -> OperatorCommands:
    """Return further commands for the same cluster, with the same properties file."""
    return OperatorCommands((chosen.bootstrap_server,), chosen.command_config)


def _require_broker(broker_id: int | None, client: KafkaClient) -> None:
    if broker_id is None:
        return
    known = broker_ids(client)
    if broker_id not in known:
        raise OptionError(
            f"Broker {broker_id} does not exist or does not run",
            checked=f"The cluster has the brokers {', '.join(map(str, known))} now",
            remedy="Use one of these broker ids. Leaders know what is open in the partitions of a broker that is down: "
            "leave out --broker-id, with --all-topics in a search of all partitions",
        )


def _require_replica(chosen: argparse.Namespace, client: KafkaClient) -> None:
    """Refuse a broker that has no replica of the topic or partition: it knows no transaction there."""
    if chosen.broker_id is None or chosen.topic is None:
        return
    replicas = replicas_of(client, chosen.topic, chosen.partition)
    if replicas and chosen.broker_id not in replicas:
        where = chosen.topic if chosen.partition is None else TopicPartition(chosen.topic, chosen.partition)
        raise OptionError(
            f"Broker {chosen.broker_id} has no replica of {where}",
            checked="Metadata: its replicas are on " + ", ".join(f"broker {each}" for each in replicas),
            remedy="Use one of these broker ids. Leave out --broker-id to query the leader",
        )


def _scope(chosen: argparse.Namespace, client: KafkaClient) -> list[TopicPartition]:
    if chosen.topic is None and chosen.broker_id is None and not chosen.all_topics:
        raise OptionError(
            "find-hanging needs to know where to search",
            remedy="Give --topic, --broker-id or both; --all-topics searches all partitions of the cluster",
        )
    if chosen.all_topics and (chosen.topic is not None or chosen.broker_id is not None):
        raise OptionError("--all-topics excludes --topic and --broker-id", remedy="Leave out the one or the other")
    if chosen.partition is not None and chosen.topic is None:
        raise OptionError("--partition requires --topic", remedy="Add --topic")
    # A broker that does not exist leads no partition, so nothing would be checked and no transaction would seem to
    # hang.
    _require_broker(chosen.broker_id, client)
    _require_replica(chosen, client)
    if chosen.partition is not None:
        return [TopicPartition(chosen.topic, chosen.partition)]
    topics = [chosen.topic] if chosen.topic is not None else all_topics(client)
    return partitions_of(client, topics, chosen.broker_id)
