"""The manual end of transactions: a hanging one by a marker in its partition, a live one by its coordinator."""

import argparse
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, TransactionState
from spark_eos.admin.decision_operator import CHANGED, RefusedError
from spark_eos.admin.output import TABLE, ExitCode, say, write
from spark_eos.admin.parsers import is_confirmed
from spark_eos.admin.transactions_view import commands_of, described
from spark_eos.client.inspection import TransactionDescription
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import leaderless_among
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.client.transaction_admin import write_end_marker
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import EosKafkaError, OptionError, TransactionError, UnsupportedError
from spark_eos.readable import one_line, printable
from spark_eos.sink.naming import sinks_task
from spark_eos.transactions.findings import HangingFinding, HangingVerdict, Owner, PartitionTransaction
from spark_eos.transactions.judge import judge, open_transactions, require_verdicts

# Brokers allow a minute unless their limit is set very low.
_ALLOWED_TIMEOUT_MS: Final = 60_000
_LOST_TO_A_RESTART: Final = (
    "An application that would commit it after a restart, as Flink's sink does from its checkpoint, loses the rows: "
    "start it instead."
)
Say: TypeAlias = Callable[[str], None]


class _Marker(NamedTuple):
    """The contents of an end marker: whose transaction it ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class EndPlan(NamedTuple):
    """What a command is about to do, what does it, the result for programs, and the transaction to end."""

    text: str
    do: Callable[[], object]
    document: dict[str, Any]
    transaction: tuple[object, ...]

    def require_same(self, shown: "EndPlan", remedy: str) -> None:
        """Raise `RefusedError` unless this plan, from a second look, ends the transaction that was shown."""
        if self.transaction != shown.transaction:
            raise RefusedError(CHANGED, checked=f"It would now {self.text}", remedy=remedy)


def abort(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    """Write the marker that aborts a transaction in one partition, unless its coordinator will still end it."""
    return _carry_out(chosen, lambda say: plan_abort(chosen, client, now_ms, say))


def force_terminate(chosen: argparse.Namespace, client: KafkaClient, now_ms: int) -> int:
    """Have the coordinator abort a transactional id's transaction in all partitions, and fence its producer."""
    return _carry_out(chosen, lambda say: plan_force_terminate(chosen, client, say))


def plan_abort(chosen: argparse.Namespace, client: KafkaClient, now_ms: int, say: Say) -> EndPlan:
    """Name the marker to write, or refuse; `say` is called with each finding."""
    place = TopicPartition(chosen.topic, chosen.partition)
    if chosen.start_offset is not None:
        first_offset = chosen.start_offset
        named = _at_offset(chosen, place, client, now_ms, say)
    else:
        named, first_offset = _by_producer(chosen, place, client, say)
    # Before its first marker a partition knows no coordinator epoch; 0 is not newer than any.
    marker = named._replace(coordinator_epoch=max(named.coordinator_epoch, 0))
    kind = "a commit" if chosen.commit else "an abort"
    return EndPlan(
        f"write {kind} marker into {place} for producer id {marker.producer_id}, epoch {marker.producer_epoch}, "
        f"coordinator epoch {marker.coordinator_epoch}",
        lambda: write_end_marker(client, place, *marker, commit=chosen.commit),
        {"topic": place.topic, "partition": place.partition, **marker._asdict()},
        (place, *marker, first_offset),
    )


def plan_force_terminate(chosen: argparse.Namespace, client: KafkaClient, say: Say) -> EndPlan:
    """Name the transaction to end, or refuse; `say` is called with each finding."""
    name = chosen.transactional_id
    # InitProducerId would create an id that does not exist.
    coordinator_id, found = described(client, name)
    say(f"Coordinator: {Owner(coordinator_id, found).says()}.")
    task = sinks_task(name)
    if task is not None and not chosen.force:
        show = commands_of(chosen).show_decision(task.prefix, task.query)
        raise RefusedError(
            f"'{name}' looks like a transactional id of query {task.query!r} of the eos-kafka sink. If its "
            "micro-batch is decided, terminating it would lose rows",
            remedy=f"Run `{show}`, then `complete` or `abort` that decision; --force "
            "terminates the transaction anyway, and its rows are lost if it is decided",
        )
    leaderless = leaderless_among(client, found.topic_partitions)
    if leaderless is not None and not chosen.force:
        raise RefusedError(
            f"The transaction of '{name}' wrote to {leaderless}, which has no leader: its marker there could be lost "
            "(KAFKA-20734), and the transaction would hang",
            checked="Metadata",
            remedy="Wait until the partition has a leader; --force terminates the transaction anyway",
        )
    if found.state == TransactionState.ONGOING.label:
        say(_LOST_TO_A_RESTART)
    return EndPlan(
        f"{_effect(found)}, with InitProducerId to broker {coordinator_id}",
        lambda: _fence(client, found),
        {"transactional_id": name, "coordinator_id": coordinator_id, "state_before": found.state},
        (name, found.producer_id, found.producer_epoch, found.state, found.start_time_ms),
    )


def _effect(found: TransactionDescription) -> str:
    named = f"'{one_line(found.transactional_id)}'"
    if found.state == TransactionState.ONGOING.label:
        return f"abort the open transaction of {named} and fence its producer"
    if found.state.startswith("Prepare"):
        return f"wait for the end of the transaction of {named}, which is {found.state}, and fence its producer"
    return f"fence the producer of {named}, which has no open transaction"


def _fence(client: KafkaClient, found: TransactionDescription) -> None:
    """Take over the id; its timeout is stored with it, so pass the same one if the brokers still allow it."""
    try:
        init_producer_id(client, found.transactional_id, transaction_timeout_ms=found.transaction_timeout_ms)
    except EosKafkaError as error:
        if error.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        # The next producer brings its own.
        init_producer_id(client, found.transactional_id, transaction_timeout_ms=_ALLOWED_TIMEOUT_MS)


def _at_offset(
    chosen: argparse.Namespace, place: TopicPartition, client: KafkaClient, now_ms: int, say: Say
) -> _Marker:
    opened = open_transactions(ProducerScan(client), [place])
    matching = [each for each in opened if each.producer.first_offset == chosen.start_offset]
    if not matching:
        begins = ", ".join(str(each.producer.first_offset) for each in opened)
        raise TransactionError(
            f"{place} has no open transaction that begins at offset {chosen.start_offset}",
            checked="DescribeProducers of the partition's leader"
            + (
                f", which lists open transactions that begin at {begins}"
                if begins
                else ", which lists no open transaction"
            ),
        )
    found = matching[0]
    say(f"Partition: {found.says(now_ms)}.")
    for name in ("producer_id", "producer_epoch", "coordinator_epoch"):
        given, known = getattr(chosen, name, None), getattr(found.producer, name)
        if given not in (None, known):
            option = f"--{name.replace('_', '-')}"
            raise RefusedError(
                f"The transaction at offset {chosen.start_offset} of {place} has another {option}: {known}, not "
                f"{given}",
                remedy=f"Leave out {option} if --start-offset names the right transaction",
            )
    if not chosen.force:
        _check(chosen, found, client, say)
    producer = found.producer
    return _Marker(producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)


def _by_producer(
    chosen: argparse.Namespace, place: TopicPartition, client: KafkaClient, say: Say
) -> tuple[_Marker, int | None]:
    """Return the producer as given, if the partition has exactly its transaction open, and where that begins."""
    missing = [name for name in ("producer_id", "producer_epoch", "coordinator_epoch") if getattr(chosen, name) is None]
    if missing:
        raise OptionError(
            "The transaction to abort is not named; missing: " + ", ".join(f"--{n.replace('_', '-')}" for n in missing),
            remedy="Give --start-offset, or all of --producer-id, --producer-epoch, --coordinator-epoch",
        )
    first_offset = None
    if not chosen.force:
        opened = _opened_by(chosen, place, client)
        first_offset = opened.producer.first_offset
        _check(chosen, opened, client, say)
    return _Marker(chosen.producer_id, chosen.producer_epoch, chosen.coordinator_epoch), first_offset


def _opened_by(chosen: argparse.Namespace, place: TopicPartition, client: KafkaClient) -> PartitionTransaction:
    """Return the open transaction that the arguments name; refuse a marker for any other.

    A partition accepts a marker of an epoch that is higher than any it knows, and from then on refuses the producer.
    """
    try:
        opened = open_transactions(ProducerScan(client), [place])
    except UnsupportedError as error:
        raise RefusedError(
            f"These brokers cannot report what is open in {place}: {error.happened}",
            remedy="Use --force to write the marker without this check: it may then end another transaction, whose "
            "rows are lost",
        ) from error
    for each in opened:
        producer = each.producer
        if (producer.producer_id, producer.producer_epoch) == (chosen.producer_id, chosen.producer_epoch):
            if producer.coordinator_epoch > chosen.coordinator_epoch:
                break
            return each
    listed = "; ".join(
        f"producer id {each.producer.producer_id}, epoch {each.producer.producer_epoch}, coordinator epoch "
        f"{each.producer.coordinator_epoch}, from offset {each.producer.first_offset}"
        for each in opened
    )
    raise RefusedError(
        f"{place} has no open transaction of producer id {chosen.producer_id}, epoch {chosen.producer_epoch}, that a "
        f"marker with coordinator epoch {chosen.coordinator_epoch} would end",
        checked=f"DescribeProducers of the partition's leader lists {listed or 'no open transaction'}",
        remedy="Name an open transaction with --start-offset. --force writes the marker anyway; if its epoch is higher "
        "than the producer's, the partition refuses that producer for good",
    )


def _check(chosen: argparse.Namespace, transaction: PartitionTransaction, client: KafkaClient, say: Say) -> None:
    """Refuse a marker for a transaction that ends on its own, or one that contradicts its coordinator's outcome."""
    place, first_offset = transaction.topic_partition, transaction.producer.first_offset
    try:
        [finding] = judge(client, [transaction], is_for_end=True)
    except UnsupportedError as error:
        raise RefusedError(
            f"These brokers cannot report whether the transaction is live: {error.happened}",
            remedy="Use --force to abort it anyway: if it is live, its producer loses the rows",
        ) from error
    require_verdicts([finding])
    say(f"Coordinator: {finding.coordinator_says}.")
    if finding.verdict is HangingVerdict.ENDED:
        raise RefusedError(f"The transaction at offset {first_offset} of {place} has just ended on its own")
    if finding.verdict is HangingVerdict.LIVE and finding.owner is not None:
        name = finding.owner.description.transactional_id
        if finding.open_task is not None:
            raise RefusedError(
                f"The transaction does not hang: '{name}' is an id of the eos-kafka sink, and its micro-batch may be "
                "decided",
                checked="ListTransactions on every broker, then DescribeTransactions",
                remedy=f"Run `{finding.command(commands_of(chosen))}`, then `complete` or `abort` that decision. "
                "--force aborts the transaction in this partition only, and its rows are lost if it is decided",
            )
        raise RefusedError(
            f"The transaction does not hang: broker {finding.owner.coordinator_id} has {place} in the transaction of "
            f"'{name}', state {finding.owner.description.state}, and will write its marker",
            checked="ListTransactions on every broker, then DescribeTransactions",
            remedy=f"If its producer is dead, `{commands_of(chosen).force_terminate(name)}` ends it in all its "
            "partitions. --force aborts it in this partition only; its other partitions may end differently",
        )
    _refuse_wrong_fate(chosen, finding, say)


def _refuse_wrong_fate(chosen: argparse.Namespace, finding: HangingFinding, say: Say) -> None:
    place, producer = finding.transaction.topic_partition, finding.transaction.producer
    use = "If that shows a commit, use" if finding.doubt else "Use"
    if finding.is_committed and not chosen.commit:
        raise RefusedError(
            f"The epochs show that '{finding.transactional_id}' committed this transaction: an abort "
            f"marker in {place} would remove rows that its producer knows to be committed",
            checked=f"The transaction is open at epoch {producer.producer_epoch} in the partition; "
            f"{finding.coordinator_says}{finding.doubt}. Apache Kafka can lose a marker when a broker returns "
            "(KAFKA-20734)",
            remedy=f"{use} --commit to write the missing commit marker; --force aborts the transaction anyway, and its "
            "rows are lost",
        )
    if chosen.commit and not finding.is_committed:
        raise RefusedError(
            f"There is no evidence that the transaction in {place} was committed",
            checked=finding.coordinator_says,
            remedy="Leave out --commit to abort it; --force --commit commits it anyway, and shows rows that its "
            "producer may have aborted",
        )
    if finding.doubt:
        say(f"The epochs show a commit{finding.doubt}.")


def _carry_out(chosen: argparse.Namespace, look: Callable[[Say], EndPlan]) -> int:
    plan = look(_say)
    _say(f"About to {plan.text}, on {chosen.bootstrap_server}.")
    is_done = is_confirmed(chosen)
    if is_done:
        if not chosen.yes:
            plan = _second_look(look, plan)
        plan.do()
        _say("Done.")
    # Kafka's tool prints nothing, so neither does the table output.
    if chosen.output != TABLE:
        result = {**plan.document, "done": is_done}
        write(chosen, "", result, list(result), [result])
    return ExitCode.DONE if is_done else ExitCode.NOTHING_DONE


def _say(text: str) -> None:
    say(printable(text))


def _second_look(look: Callable[[Say], EndPlan], shown: EndPlan) -> EndPlan:
    """Plan again after a person has read the plan: by then a producer may have begun its next transaction."""
    remedy = "Repeat the command to see what is open now"
    try:
        plan = look(lambda _: None)
    except TransactionError as error:
        raise RefusedError(CHANGED, checked=error.happened, remedy=remedy) from error
    plan.require_same(shown, remedy)
    return plan
