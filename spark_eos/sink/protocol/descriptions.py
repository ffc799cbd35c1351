"""The descriptions of transactions that are known to have begun, without outdated ones.

A coordinator that is disconnected from the other brokers, or was paused, still responds: with the state that its id had
then. What is known of the transaction can prove that (`EARLIER`): the coordinator is then looked up and asked again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from broker_core.types import ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.protocol.asks import (
    DescribeTransactions,
    EndTransactions,
    ForgetCoordinators,
    LeaderlessPartitions,
    Sleep,
    TransactionVersion,
    info,
)

# Why a description, or its absence, is not trusted; None if it is.
_Doubt: TypeAlias = Callable[[Description | None], str | None]
_TRIES: Final = 6
_PAUSE_SECONDS: Final = 0.1

_INITIALISED: Final = "InitProducerId raises the epoch and leaves the id Empty, and the transaction begins after that"
_COMMITTED_BEFORE: Final = (
    "under transactions V2 a commit raises the epoch, so that what is committed at this one came before (KIP-890)"
)
# (state, begun with transactions V2) of an id at the very epoch of its transaction -> why that was before the
# transaction began. A state that is not listed may have come after it. An abort under V2 that did not change the epoch
# may have too: a sweep ends what it finds with the cluster's current protocol, which may have been lowered.
EARLIER: Final[Mapping[tuple[TransactionState, bool], str]] = {
    (TransactionState.EMPTY, False): _INITIALISED,
    (TransactionState.EMPTY, True): _INITIALISED,
    (TransactionState.PREPARE_COMMIT, True): _COMMITTED_BEFORE,
    (TransactionState.COMPLETE_COMMIT, True): _COMMITTED_BEFORE,
}
_LOWER_EPOCH: Final = "an epoch never decreases"
_UNKNOWN: Final = "an id does not expire while its transaction is open"


def why_earlier(transaction: OpenTransaction, description: Description) -> str | None:
    """Return why a description is from before a transaction began, or None if nothing proves that.

    Another producer id proves nothing: brokers allocate ids in blocks, so a later one may be lower.
    """
    begun = transaction.producer
    if description.producer.producer_id != begun.producer_id:
        return None
    if description.producer.producer_epoch < begun.producer_epoch:
        return _LOWER_EPOCH
    if description.producer.producer_epoch > begun.producer_epoch:
        return None
    return EARLIER.get((description.state, transaction.transaction_version >= 2))


def time_left_ms(description: Description, now_ms: int) -> int:
    return description.started_at_ms + description.timeout_ms - now_ms


async def describe_prepared(
    transactions: Collection[PreparedTransaction], now_ms: int, *, leave_out: bool = False
) -> Mapping[str, Description]:
    """Describe transactions that were prepared; ids that stay unknown are left out.

    If the coordinators' responses stay outdated, this raises `UnansweredError`. With `leave_out` it leaves those ids
    out instead, for callers that can also read the partitions' logs.
    """

    def doubt(transaction: PreparedTransaction, description: Description | None) -> str | None:
        if description is None:
            return _UNKNOWN if now_ms < transaction.started_at_ms + transaction.timeout_ms else None
        return why_earlier(transaction.opened, description)

    return await _describe({t.transactional_id: partial(doubt, t) for t in transactions}, leave_out=leave_out)


async def describe_since(transactional_id: str, held: ProducerIdentity) -> Description | None:
    """Describe an id that once had this identity; a response with a lower epoch is outdated and not used."""

    def doubt(description: Description | None) -> str | None:
        if description is None or description.producer.producer_id != held.producer_id:
            return None
        return _LOWER_EPOCH if description.producer.producer_epoch < held.producer_epoch else None

    return (await _describe({transactional_id: doubt})).get(transactional_id)


async def abort_described(found: Sequence[Description], wait_ms: int | None = None) -> list[Description]:
    """Abort exactly the transactions that were described; a request that arrives late affects nothing newer.

    Return the transactions that it asked to abort. It leaves out what `without_leaders` returns.
    """
    waiting = await without_leaders({each.transactional_id: each.topic_partitions for each in found})
    for name, place in waiting.items():
        await info(f"transaction {name} is left to a later sweep or to its timeout: {place} has no leader")
    ended = [each for each in found if each.transactional_id not in waiting]
    version = await TransactionVersion()
    opened = [OpenTransaction(each.transactional_id, each.producer, version) for each in ended]
    await EndTransactions(opened, commit=False, wait_ms=wait_ms)
    return ended


async def without_leaders(
    written: Mapping[str, Collection[TopicPartition | WrittenRange]],
) -> Mapping[str, TopicPartition]:
    """Return the transactional ids that wrote to a partition without a leader, each with one such partition.

    They are not ended. Apache Kafka 4.3 and 4.4 complete such a transaction without its marker there (KAFKA-20734):
    readers of the partition wait until an operator ends it, and the producer's next marker ends both transactions the
    same way. What is left open is ended by the next sweep, or by its coordinator at its timeout.
    """
    topics = sorted({place.topic for places in written.values() for place in places})
    leaderless = await LeaderlessPartitions(topics) if topics else {}
    # A micro-batch may have a million places, and almost never one without a leader.
    if not any(leaderless.values()):
        return {}
    return {
        name: TopicPartition(place.topic, place.partition)
        for name, places in written.items()
        for place in places
        if place.partition in leaderless.get(place.topic, ())
    }


async def _describe(wanted: Mapping[str, _Doubt], *, leave_out: bool = False) -> Mapping[str, Description]:
    """Describe ids, with retries for doubtful responses; ids that stay unknown are left out."""
    found: dict[str, Description] = {}
    described: Mapping[str, Description] = {}
    doubts = dict.fromkeys(wanted, "")
    for attempt in range(_TRIES):
        if attempt:
            await info(f"retrying DescribeTransactions, the coordinators' responses may be outdated: {doubts}")
            await ForgetCoordinators(doubts)
            await Sleep(_PAUSE_SECONDS)
        asked = list(doubts)
        described = await DescribeTransactions(asked)
        doubts = {name: why for name in asked if (why := wanted[name](described.get(name))) is not None}
        found |= {name: each for name, each in described.items() if name not in doubts}
        if not doubts:
            return found
    stale = {name: why for name, why in doubts.items() if name in described}
    if not stale or leave_out:
        return found
    name, why = next(iter(stale.items()))
    raise UnansweredError(
        f"The coordinator of {name} reports its state from before its transaction began: "
        f"{described[name].state.label}, producer {described[name].producer}",
        checked=f"DescribeTransactions, {_TRIES} times, with FindCoordinator before each: {why}",
        remedy="The response probably comes from a broker that is disconnected from the others. Nothing was decided "
        "or ended because of it. Restart the query, or the job with its jobId, when that broker is back or "
        "stopped; restarting is safe. If no broker was away, the newest records of __transaction_state are lost: what "
        "tasks have written blocks read_committed readers until you end it, and "
        "`eos-kafka transactions --bootstrap-server HOST:PORT find-hanging --all-topics` prints the commands",
    )
