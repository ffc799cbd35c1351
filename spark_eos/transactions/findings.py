"""An open transaction of a partition, the verdict about it, the evidence, and the words for all of these.

Only a coordinator knows when a transaction began, by its own clock. A partition knows the time of the producer's last
record, which the producer chose: it can lie in the future, or long before the transaction began. So an age comes from
the coordinator, or from when it was first seen; the time of a record is shown as a date, never as an age.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, TransactionState
from spark_eos.client.inspection import SEE_EVERY_ID, TransactionDescription
from spark_eos.client.producer_scan import ActiveProducer
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import age_text, one_line, utc
from spark_eos.sink.naming import TaskId, is_sinks_driver, sinks_task

MINUTE_MS: Final = 60_000
# How far the clocks of two machines may differ.
_CLOCK_SKEW_MS: Final = MINUTE_MS
# Each partition of a transaction has a finding, which would name all of them again.
_MOST_NAMED: Final = 20


class HangingVerdict(StrEnum):
    """What an open transaction is: the one word for it in every view."""

    HANGING = "hanging"
    LIVE = "live"
    ENDED = "ended"
    UNKNOWN = "unknown"


VERDICT_WORDS: Final[Mapping[HangingVerdict, str]] = {
    HangingVerdict.HANGING: "it hangs",
    HangingVerdict.LIVE: "it does not hang",
    HangingVerdict.ENDED: "it has ended",
    HangingVerdict.UNKNOWN: "its state is unknown",
}


def possible_time(at_ms: int, now_ms: int) -> int | None:
    """Return a time from elsewhere, at most `now_ms`; None if it is in the future, which says nothing about an age."""
    return min(at_ms, now_ms) if 0 < at_ms <= now_ms + _CLOCK_SKEW_MS else None


def possible_start(each: TransactionDescription, now_ms: int) -> int | None:
    """Return when a transaction began, at most `now_ms`; None if the clocks of coordinator and caller must differ.

    A coordinator ends a transaction at its timeout, so none is ongoing for much longer than that.
    """
    longest_ms = each.transaction_timeout_ms + _CLOCK_SKEW_MS
    is_late = _is_ongoing(each) and now_ms - each.start_time_ms > longest_ms
    return None if is_late else possible_time(each.start_time_ms, now_ms)


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction, named by the partition it is open in and the producer that began it."""

    topic_partition: TopicPartition
    producer: ActiveProducer

    @property
    def name(self) -> tuple[TopicPartition, int, int]:
        """Return what identifies the transaction; its epoch rises when a coordinator fences the producer."""
        return self.topic_partition, self.producer.producer_id, self.producer.first_offset

    def idle_ms(self, now_ms: int) -> int | None:
        """Return how long ago its last record is dated, by its producer; None if that time cannot be right."""
        at_ms = possible_time(self.producer.last_timestamp_ms, now_ms)
        return None if at_ms is None else now_ms - at_ms

    def dated(self, now_ms: int) -> str:
        """Describe the time in its last record, which is no evidence of an age."""
        at_ms, idle_ms = self.producer.last_timestamp_ms, self.idle_ms(now_ms)
        if at_ms <= 0:
            return "has no time"
        ago = "which is in the future and says nothing about its age" if idle_ms is None else f"{age_text(idle_ms)} ago"
        return f"is dated {utc(at_ms)} by its producer, {ago}"

    def says(self, now_ms: int) -> str:
        each = self.producer
        return (
            f"{self.topic_partition} has an open transaction of producer id {each.producer_id}, epoch "
            f"{each.producer_epoch}, that begins at offset {each.first_offset}; its last record there "
            f"{self.dated(now_ms)}"
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator's description of a transactional id with the producer id in question."""

    coordinator_id: int
    description: TransactionDescription

    def will_end(self, transaction: PartitionTransaction) -> bool:
        """Return whether this coordinator will still write the marker of the transaction in its partition.

        The coordinator lists a partition until its marker is written. An open transaction that is on no list hangs.
        So does one of an earlier epoch, although a later transaction of the same producer may list the partition: its
        marker, if it comes, carries the outcome of the later one. While a transaction ends, its epoch may be one higher
        than it was in the partition: a fence raises it, and so does each end under transactions V2.
        """
        ahead = self._epochs_ahead_of(transaction.producer)
        is_its_epoch = ahead == 0 or (ahead == 1 and not _is_ongoing(self.description))
        return self.description.lists(transaction.topic_partition) and is_its_epoch

    def has_committed(self, producer: ActiveProducer, *, is_v2: bool = True) -> bool:
        """Return whether this coordinator has committed this very transaction, as far as epochs show.

        Under transactions V2 the end of a transaction raises the epoch by one, so a partition whose epoch is one behind
        a CompleteCommit lacks its marker: Apache Kafka 4 can lose one when a broker returns (KAFKA-20734). Under V1
        only a new owner of the id raises the epoch. The epochs then show a commit of the sink alone, which writes one
        transaction in each epoch.
        """
        is_committed = self.description.exists and self.description.state == TransactionState.COMPLETE_COMMIT.label
        ahead = self._epochs_ahead_of(producer)
        return is_committed and (ahead == 1 if is_v2 else ahead == 0 and self.is_sinks)

    def _epochs_ahead_of(self, producer: ActiveProducer) -> int | None:
        is_same = self.description.producer_id == producer.producer_id
        return self.description.producer_epoch - producer.producer_epoch if is_same else None

    @property
    def is_sinks(self) -> bool:
        name = self.description.transactional_id
        return sinks_task(name) is not None or is_sinks_driver(name)

    def says(self, place: TopicPartition | None = None) -> str:
        """Return what its coordinator says, with the partition in question before the others."""
        each = self.description
        if not each.exists:
            return (
                f"broker {self.coordinator_id} no longer knows the transactional id '{one_line(each.transactional_id)}'"
            )
        named = sorted(each.topic_partitions, key=lambda other: other != place)[:_MOST_NAMED]
        partitions = ", ".join(map(str, named)) or "none"
        if (left := len(each.topic_partitions) - _MOST_NAMED) > 0:
            partitions += f" and {left} more"
        return (
            f"broker {self.coordinator_id} coordinates '{one_line(each.transactional_id)}': state {each.state}, "
            f"producer id {each.producer_id}, epoch {each.producer_epoch}, partitions: {partitions}"
        )


@dataclass(frozen=True, slots=True)
class HangingFinding:
    """An open transaction, what its coordinators report and the verdict; `owners` is None if none was queried.

    `is_v2` is false if it is known to be a transaction of V1: a later epoch says nothing about its end then. It is None
    if nothing shows which protocol its client uses.
    """

    transaction: PartitionTransaction
    verdict: HangingVerdict
    owners: tuple[Owner, ...] | None
    why: str
    is_v2: bool | None = True

    @property
    def hangs(self) -> bool:
        return self.verdict is HangingVerdict.HANGING

    @property
    def owner(self) -> Owner | None:
        """Return the coordinator to quote, first of all a coordinator that will end the transaction."""
        owners = self.owners or ()
        return next((each for each in owners if each.will_end(self.transaction)), next(iter(owners), None))

    @property
    def transactional_id(self) -> str | None:
        return None if self.owner is None else self.owner.description.transactional_id

    @property
    def is_committed(self) -> bool:
        """Return whether only the marker of a commit is missing."""
        is_v2 = self.is_v2 is not False
        return any(each.has_committed(self.transaction.producer, is_v2=is_v2) for each in self.owners or ())

    @property
    def doubt(self) -> str:
        """Return how else the epochs of a commit without its marker may have come about; empty if they prove it."""
        is_sinks = any(each.is_sinks for each in self.owners or ())
        return IF_V2 if self.is_committed and self.is_v2 is None and not is_sinks else ""

    def began_at_ms(self, now_ms: int) -> int | None:
        """Return when the transaction began, by its coordinator's clock; None if that is unknown or cannot be right."""
        if self.verdict is not HangingVerdict.LIVE or self.owner is None:
            return None
        return possible_start(self.owner.description, now_ms)

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long it has been open, None if that is unknown."""
        began_ms = self.began_at_ms(now_ms)
        return None if began_ms is None else now_ms - began_ms

    @property
    def coordinator_says(self) -> str:
        if self.owners is None:
            return "not queried"
        if not self.owners:
            return f"no broker lists a transactional id with producer id {self.transaction.producer.producer_id}"
        return "; ".join(each.says(self.transaction.topic_partition) for each in self.owners)

    def command(self, commands: OperatorCommands) -> str | None:
        """Return the command that ends a hanging transaction, or an abandoned live one; None for the others.

        A live one of the sink may be decided, and its rows would be lost: the command shows its decision.
        """
        if self.hangs:
            place, producer = self.transaction.topic_partition, self.transaction.producer
            return commands.abort(place, producer.first_offset, commit=self.is_committed)
        if (task := self.open_task) is not None:
            return commands.show_decision(task.prefix, task.query)
        return commands.force_terminate(self._open_id) if self._open_id is not None else None

    def advice(self, commands: OperatorCommands) -> str:
        """Return the command with what it is for, or an empty text."""
        command = self.command(commands)
        purpose = "to end it" if self.open_task is None else "to see its decision"
        purpose = "if that shows a commit" if self.doubt else purpose
        return f"{purpose}: {command}" if command else ""

    @property
    def open_task(self) -> TaskId | None:
        """Return the task of the sink whose live transaction is Ongoing: it may be decided."""
        return sinks_task(self._open_id or "")

    @property
    def _open_id(self) -> str | None:
        owner = self.owner
        is_open = self.verdict is HangingVerdict.LIVE and owner is not None and _is_ongoing(owner.description)
        return self.transactional_id if is_open else None

    def sentence(self, commands: OperatorCommands, now_ms: int) -> str:
        if self.verdict is HangingVerdict.ENDED:
            return "It ended in the meantime."
        producer, owner, command = self.transaction.producer, self.owner, one_line(self.command(commands) or "")
        known = f"producer id {producer.producer_id}, epoch {producer.producer_epoch}"
        whose = f"a transaction of {known}"
        if owner is not None:
            whose = f"the transaction of '{one_line(owner.description.transactional_id)}' ({known})"
        if self.verdict is HangingVerdict.UNKNOWN:
            again = commands.find_hanging(self.transaction.topic_partition.topic)
            search = f" `{again}` shows what it is to an operator who may see every id." if self.why == HIDDEN else ""
            return f"It is {whose}. Its state is unknown: {self.why}.{search}"
        if self.hangs or owner is None:
            condition = "If that shows a commit, " if self.doubt else ""
            return f"It is {whose}, and it hangs: {self.why}. {condition}`{command}` ends it."
        age_ms = self.age_ms(now_ms)
        age = "" if age_ms is None else f" for {age_ms / 1_000:.0f} s"
        timeout = f"timeout {owner.description.transaction_timeout_ms / 1_000:.0f} s"
        end = f" If its producer is dead, `{command}` ends it." if command else ""
        if self.open_task is not None:
            end = f" The eos-kafka sink wrote it: `{command}` shows whether it is decided."
        return f"It is {whose}, in state {owner.description.state}{age}, {timeout}.{end}"


def live_finding(transaction: PartitionTransaction, owners: Sequence[Owner]) -> HangingFinding | None:
    """Return the finding for a transaction that one of these coordinators will end; None if none of them will."""
    each = next((each.description for each in owners if each.will_end(transaction)), None)
    if each is None:
        return None
    why = (
        "the partition belongs to an ongoing transaction of its coordinator, which ends when the producer ends it or "
        f"at its timeout of {each.transaction_timeout_ms} ms after {utc(each.start_time_ms)}"
        if _is_ongoing(each)
        else f"the transaction is in state {each.state}, and its coordinator still has to write the marker to this "
        "partition"
    )
    return HangingFinding(transaction, HangingVerdict.LIVE, tuple(owners), why)


def hanging_finding(
    transaction: PartitionTransaction, owners: Sequence[Owner], *, is_v2: bool | None = True
) -> HangingFinding:
    """Return the finding for a transaction that is still open and that no coordinator will end."""
    finding = HangingFinding(transaction, HangingVerdict.HANGING, tuple(owners), "", is_v2)
    place, producer = transaction.topic_partition, transaction.producer
    later = next((each.description for each in owners if each.description.lists(place)), None)
    if later is not None:
        why = _OTHER_EPOCH.format(opened=producer.producer_epoch, known=later.producer_epoch)
    elif finding.is_committed:
        why = _HANGING + _COMMITTED + finding.doubt
    else:
        why = _HANGING if owners else _HANGING_UNKNOWN
        may_be_decided = not owners or any(each.is_sinks for each in owners)
        why += _MAYBE_DECIDED if may_be_decided else ""
    why += _OFFSETS if place.topic == CONSUMER_OFFSETS_TOPIC else ""
    return replace(finding, why=why)


def ended_finding(transaction: PartitionTransaction, owners: Sequence[Owner] | None = None) -> HangingFinding:
    known = None if owners is None else tuple(owners)
    return HangingFinding(transaction, HangingVerdict.ENDED, known, "it ended while the coordinators were queried")


def unknown_finding(transaction: PartitionTransaction, why: str, *, is_hidden: bool = False) -> HangingFinding:
    """Return the finding for a transaction about which coordinators report nothing, because of `why`."""
    return HangingFinding(transaction, HangingVerdict.UNKNOWN, () if is_hidden else None, why)


def open_now(findings: Iterable[HangingFinding]) -> tuple[HangingFinding, ...]:
    """Leave out the transactions that have ended, and put the oldest of a partition first."""
    left = (each for each in findings if each.verdict is not HangingVerdict.ENDED)
    return tuple(sorted(left, key=lambda each: each.transaction.producer.first_offset))


def _is_ongoing(description: TransactionDescription) -> bool:
    return description.state == TransactionState.ONGOING.label


HIDDEN: Final = f"its transactional id is hidden from the principal. {SEE_EVERY_ID} to see it"
OFFLINE: Final = (
    "its coordinator may be offline: no leader has the partitions {} of the coordinators' topic, whose transactional "
    "ids no broker lists"
)
SILENT: Final = "its coordinator may be one of the brokers that did not list their transactional ids in time: {}"
NOT_JUDGED: Final = "its coordinator is queried at the next look"
_HANGING: Final = "its coordinator has no open transaction with this partition, so no marker will end it"
_OTHER_EPOCH: Final = (
    "its coordinator has this partition in a transaction at epoch {known}, which is not this one, at epoch {opened}: "
    "no marker of its own will end it, and a marker of the other one would give it the other one's outcome"
)
_OFFSETS: Final = (
    ". Until it ends, the groups whose offsets it contains cannot read their committed offsets, so their consumers "
    "cannot start (UNSTABLE_OFFSET_COMMIT)"
)
_COMMITTED: Final = (
    ". Its epoch shows that it was committed and that the commit marker was lost. An abort would remove rows "
    "that the producer knows to be committed, so `abort` refuses it; `abort --commit` writes the missing marker"
)
IF_V2: Final = (
    ". This is so if its client uses transactions V2, as Java's does from 4.0 on. With another client it may have been "
    "aborted, and the application started again since: look into the application's log first"
)
_MAYBE_DECIDED: Final = (
    ". If a query of the eos-kafka sink writes the topic, start it first: its error names what is decided, which must "
    "be committed instead"
)
_HANGING_UNKNOWN: Final = (
    "no coordinator knows its producer id, so no marker will end it; the principal can see all transactional "
    "ids, so this is not for lack of rights"
)
