"""The judgement whether an open transaction hangs, and why.

A transaction is open in a partition until a marker ends it there, and only its coordinator writes markers on its own.
So an open transaction that no coordinator lists any more stays open forever, and blocks the last stable offset and
compaction: it hangs. To judge this, the coordinator is queried after the partition, and then the partition once more: a
coordinator rightly does not know a transaction that ended in between.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, TransactionState
from spark_eos.admin.terminal import one_line
from spark_eos.admin.transaction_age import MINUTE_MS, began_at, minutes, possible_time
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.inspection import SEE_EVERY_ID, TransactionDescription, describe_transactions, sees_every_id
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT, Report
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.errors import AuthorizationError
from spark_eos.sink.decision import utc


class HangingVerdict(StrEnum):
    """What an open transaction is."""

    HANGING = "hanging"
    LIVE = "live"
    YOUNG = "young"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction, named by the partition it is open in and the producer that began it."""

    topic_partition: TopicPartition
    producer: ActiveProducer

    def idle_ms(self, now_ms: int) -> int | None:
        """Return how long ago its last record was written, by the time in it; None if that time cannot be right."""
        at_ms = possible_time(self.producer.last_timestamp_ms, now_ms)
        return None if at_ms is None else now_ms - at_ms

    def says(self, now_ms: int) -> str:
        """Describe the transaction as its partition reports it."""
        each, idle = self.producer, minutes(self.idle_ms(now_ms))
        ago = "which is in the future and says nothing about its age" if idle is None else f"{idle} min ago"
        last = f"is from {_time(each.last_timestamp_ms)}, {ago}" if each.last_timestamp_ms > 0 else "has no time"
        return (
            f"{self.topic_partition} has an open transaction of producer id {each.producer_id}, epoch "
            f"{each.producer_epoch}, that begins at offset {each.first_offset}; its last record there {last}"
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator's description of a transactional id with the producer id in question."""

    coordinator_id: int
    description: TransactionDescription

    def says(self) -> str:
        """Describe the transaction as its coordinator reports it."""
        each = self.description
        if not each.exists:
            return (
                f"broker {self.coordinator_id} no longer knows the transactional id '{one_line(each.transactional_id)}'"
            )
        partitions = ", ".join(map(str, each.topic_partitions)) or "none"
        return (
            f"broker {self.coordinator_id} coordinates '{one_line(each.transactional_id)}': state {each.state}, "
            f"producer id {each.producer_id}, epoch {each.producer_epoch}, partitions: {partitions}"
        )


@dataclass(frozen=True, slots=True)
class HangingFinding:
    """An open transaction, what its coordinators report and the verdict; `owners` is None if none was queried."""

    transaction: PartitionTransaction
    verdict: HangingVerdict
    owners: tuple[Owner, ...] | None
    why: str

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long it has been open, as far as is known."""
        live = live_owner(self.transaction, self.owners or ())
        described = None if live is None else live.description
        began_ms = began_at(described, self.transaction.producer.last_timestamp_ms, now_ms)
        return None if began_ms is None else now_ms - began_ms

    @property
    def coordinator_says(self) -> str:
        """Describe what the coordinators report."""
        if self.owners is None:
            return "not queried"
        return coordinators_say(self.transaction.producer.producer_id, self.owners)

    @property
    def is_committed(self) -> bool:
        """Return whether only the marker of a commit is missing."""
        producer = self.transaction.producer
        return committed_owner(producer.producer_id, producer.producer_epoch, self.owners or ()) is not None

    @property
    def owner(self) -> Owner | None:
        """Return the coordinator to quote: that of the transaction itself, if there is one."""
        return live_owner(self.transaction, self.owners or ()) or next(iter(self.owners or ()), None)


def find_hanging(
    admin: TransactionAdmin,
    topic_partitions: Collection[TopicPartition],
    *,
    broker_id: int | None,
    limit_ms: int,
    now_ms: int,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    report: Report | None = None,
    unreadable: dict[TopicPartition, str] | None = None,
) -> list[HangingFinding]:
    """Judge every open transaction in the partitions; those with a record younger than the limit are not checked.

    A record's time in the future says nothing: such a transaction is judged.

    `unreadable` collects the partitions that no broker describes, instead of an error for the first.
    """
    described = admin.describe_producers(
        topic_partitions, broker_id, max_in_flight=max_in_flight, report=report, unreadable=unreadable
    )
    opened = _open(described)
    idle_ms = {each: each.idle_ms(now_ms) for each in opened}
    young = [each for each, idle in idle_ms.items() if idle is not None and idle <= limit_ms]
    old = [each for each, idle in idle_ms.items() if idle is None or idle > limit_ms]
    findings = [
        HangingFinding(each, HangingVerdict.YOUNG, None, _YOUNG.format(limit=limit_ms // MINUTE_MS)) for each in young
    ]
    findings += judge(admin, old, broker_id, max_in_flight=max_in_flight) if old else []
    return sorted(findings, key=lambda each: (each.transaction.topic_partition, each.transaction.producer.first_offset))


def open_transactions(
    admin: TransactionAdmin,
    topic_partitions: Collection[TopicPartition],
    broker_id: int | None = None,
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
) -> list[PartitionTransaction]:
    """List the open transactions in partitions."""
    return _open(admin.describe_producers(topic_partitions, broker_id, max_in_flight=max_in_flight))


def _open(described: Mapping[TopicPartition, Sequence[ActiveProducer]]) -> list[PartitionTransaction]:
    return [
        PartitionTransaction(topic_partition, producer)
        for topic_partition, producers in described.items()
        for producer in producers
        if producer.is_in_transaction
    ]


def judge(
    admin: TransactionAdmin,
    opened: Sequence[PartitionTransaction],
    broker_id: int | None = None,
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
) -> list[HangingFinding]:
    """Query the coordinators about transactions that were seen open, and the partitions of the suspects again."""
    producer_ids = {each.producer.producer_id for each in opened}
    owners = owners_of(admin, producer_ids)
    # A coordinator that moves while the brokers are queried in turn may be missing once, but not twice. One that fences
    # a producer has the next epoch for a moment before the transaction's state shows that it ends.
    doubtful = {each.producer.producer_id for each in opened if _owner_in(owners, each) is None}
    owners = {**owners, **owners_of(admin, doubtful)}
    live = {each: owner for each in opened if (owner := _owner_in(owners, each)) is not None}
    doubted = {each.topic_partition for each in opened if each not in live}
    still = _names(open_transactions(admin, doubted, broker_id, max_in_flight=max_in_flight)) if doubted else set()
    findings = []
    for each in opened:
        known = owners.get(each.producer.producer_id, ())
        if each in live:
            findings.append(HangingFinding(each, HangingVerdict.LIVE, known, _live_reason(live[each])))
        elif _name(each) not in still:
            findings.append(HangingFinding(each, HangingVerdict.ENDED, known, _ENDED))
        else:
            if not known:
                require_sight(admin, each.producer.producer_id)
            findings.append(HangingFinding(each, HangingVerdict.HANGING, known, _hanging_reason(each, known)))
    return findings


def _owner_in(owners: Mapping[int, Sequence[Owner]], each: PartitionTransaction) -> Owner | None:
    return live_owner(each, owners.get(each.producer.producer_id, ()))


def require_sight(admin: TransactionAdmin, producer_id: int) -> None:
    """Refuse to call a producer unknown if the principal may not see every id: its transaction may be live."""
    if not sees_every_id(admin.client):
        raise AuthorizationError(
            f"Cannot tell whether the transaction of producer id {producer_id} hangs: the principal may not be "
            "allowed to see its transactional id",
            checked="ListTransactions on every broker, and DescribeTransactions for a transactional id that does "
            "not exist",
            remedy=SEE_EVERY_ID,
        )


def owners_of(admin: TransactionAdmin, producer_ids: Collection[int]) -> Mapping[int, tuple[Owner, ...]]:
    """Return the transactional ids of producer ids, as their coordinators describe them."""
    if not producer_ids:
        # A request without a filter lists all ids.
        return {}
    listed = {
        each.transactional_id: (node, each.producer_id)
        for node, listings in admin.list_transactions(producer_ids=producer_ids).items()
        for each in listings
        if each.producer_id in producer_ids
    }
    found: dict[int, tuple[Owner, ...]] = {}
    for name, description in describe_transactions(admin.client, list(listed)).items():
        # It may have moved since it was listed; report the broker that described it.
        node = admin.client.find_coordinator(CoordinatorType.TRANSACTION, name)
        producer_id = listed[name][1]
        found[producer_id] = (*found.get(producer_id, ()), Owner(node, description))
    return found


def live_owner(transaction: PartitionTransaction, owners: Iterable[Owner]) -> Owner | None:
    """Return the coordinator that will still write the marker of an open transaction in its partition."""
    place, producer = transaction.topic_partition, transaction.producer
    ends = (each for each in owners if each.description.will_end(place, producer.producer_id, producer.producer_epoch))
    return next(ends, None)


def committed_owner(producer_id: int, producer_epoch: int, owners: Iterable[Owner]) -> Owner | None:
    """Return the coordinator that has committed this very transaction, as far as epochs show."""
    return next((each for each in owners if each.description.has_committed(producer_id, producer_epoch)), None)


def coordinators_say(producer_id: int, owners: Sequence[Owner]) -> str:
    """Describe what the coordinators report about a producer id."""
    if not owners:
        return f"no broker lists a transactional id with producer id {producer_id}"
    return "; ".join(owner.says() for owner in owners)


def _name(each: PartitionTransaction) -> tuple[TopicPartition, int, int]:
    return each.topic_partition, each.producer.producer_id, each.producer.first_offset


def _names(opened: Iterable[PartitionTransaction]) -> set[tuple[TopicPartition, int, int]]:
    return {_name(each) for each in opened}


def _live_reason(owner: Owner) -> str:
    description = owner.description
    if description.state == TransactionState.ONGOING.label:
        return (
            "the partition belongs to an ongoing transaction of its coordinator, which ends when the producer "
            f"ends it or at its timeout of {description.transaction_timeout_ms} ms after "
            f"{_time(description.start_time_ms)}"
        )
    return (
        f"the transaction is in state {description.state}, and its coordinator still has to write the marker "
        "to this partition"
    )


def _hanging_reason(transaction: PartitionTransaction, owners: Sequence[Owner]) -> str:
    place, producer = transaction.topic_partition, transaction.producer
    consequence = _OFFSETS if place.topic == CONSUMER_OFFSETS_TOPIC else ""
    later = next((each.description for each in owners if each.description.lists(place)), None)
    if later is not None:
        return _OTHER_EPOCH.format(opened=producer.producer_epoch, known=later.producer_epoch) + consequence
    return _why_unknown(producer, owners) + consequence


def _why_unknown(producer: ActiveProducer, owners: Sequence[Owner]) -> str:
    if committed_owner(producer.producer_id, producer.producer_epoch, owners) is not None:
        return _HANGING + _COMMITTED
    return _HANGING if owners else _HANGING_UNKNOWN


def _time(at_ms: int) -> str:
    """Format a time from outside, which may be out of range."""
    try:
        return utc(at_ms)
    except (OverflowError, ValueError, OSError):
        return f"time {at_ms}"


_YOUNG: Final = (
    "its last record is less than {limit} min old, so the producer may still be active; lower "
    "--max-transaction-timeout to query its coordinator"
)
_ENDED: Final = "it ended while the coordinators were queried"
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
_HANGING_UNKNOWN: Final = (
    "no coordinator knows its producer id, so no marker will end it; the principal can see all transactional "
    "ids, so this is not for lack of rights"
)
