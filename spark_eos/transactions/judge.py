"""The judgement whether open transactions hang.

A transaction is open in a partition until a marker ends it there, and only its coordinator writes markers on its own.
So an open transaction that no coordinator lists any more stays open forever, and blocks the last stable offset and
compaction: it hangs. To judge this, the coordinator is queried after the partition, and then the partition once more: a
coordinator rightly does not know a transaction that ended in between. The age of a transaction plays no part.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    NO_SEQUENCE,
    TRANSACTION_STATE_TOPIC,
    IsolationLevel,
    TopicPartition,
)
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.fetch import FetchedChunk, fetch_once
from spark_eos.client.inspection import SEE_EVERY_ID, describe_transactions, list_by_broker, sees_every_id
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import problem_with
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT, ActiveProducer, ProducerScan, Report
from spark_eos.client.transactions import TV2
from spark_eos.errors import AuthorizationError, EosKafkaError, UnansweredError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.source import FetchLimits
from spark_eos.runtime import now_ms
from spark_eos.transactions.findings import (
    HIDDEN,
    OFFLINE,
    SILENT,
    HangingFinding,
    HangingVerdict,
    Owner,
    PartitionTransaction,
    ended_finding,
    hanging_finding,
    live_finding,
    unknown_finding,
)

# A warning in a log can do without an answer that comes late.
_WARNING_TIMEOUT_MS: Final = 5_000
# A broker returns the first batch whatever its size.
_FIRST_BATCH: Final = FetchLimits(max_bytes=1, partition_max_bytes=1)


def open_transactions(scan: ProducerScan, topic_partitions: Collection[TopicPartition]) -> list[PartitionTransaction]:
    """List the open transactions in partitions; within a partition, in the order of their first offsets."""
    return [
        PartitionTransaction(topic_partition, producer)
        for topic_partition, producers in scan.run(topic_partitions).items()
        for producer in sorted(producers, key=lambda each: each.first_offset)
        if producer.is_in_transaction
    ]


def find_open(
    client: KafkaClient,
    topic_partitions: Collection[TopicPartition],
    broker_id: int | None = None,
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    report: Report | None = None,
    unreadable: dict[TopicPartition, str] | None = None,
) -> list[HangingFinding]:
    """Judge every open transaction in the partitions, in the order of partitions and first offsets.

    `unreadable` collects the partitions that no broker describes, instead of an error for the first; one may be deleted
    during the search.
    """
    opened = open_transactions(
        ProducerScan(client, broker_id, max_in_flight, report, unreadable), sorted(topic_partitions)
    )
    return judge(client, opened, max_in_flight=max_in_flight, unreadable=unreadable)


def judge(
    client: KafkaClient,
    opened: Sequence[PartitionTransaction],
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    timeout_ms: float | None = None,
    unreadable: dict[TopicPartition, str] | None = None,
    is_for_end: bool = False,
) -> list[HangingFinding]:
    """Query the coordinators about transactions that were seen open, and the leaders of the suspects' partitions.

    A follower may not have the marker yet. With `unreadable`, there is no finding for a partition that it collects.
    A transaction that no coordinator lists has the verdict `UNKNOWN` if the principal may not see every transactional
    id, if a partition of the coordinators' topic has no leader, whose ids no broker lists, or if a broker did not
    respond: it may be live. `is_for_end` states that a marker follows: then every broker must respond, since one that
    is cut off may list an earlier state of what another coordinates.

    Raises `UnsupportedError` for brokers before Kafka 3.0, which cannot describe transactions.
    """
    silent: set[int] | None = None if is_for_end else set()
    owners = _owners_of(client, opened, timeout_ms, silent)
    # A coordinator that moves while the brokers are queried in turn may be missing once, but not twice. One that fences
    # a producer has the next epoch for a moment before the transaction's state shows that it ends.
    doubtful = [each for each in opened if live_finding(each, _of(owners, each)) is None]
    offline = offline_coordinators(client, timeout_ms) if doubtful else set()
    owners = {**owners, **_owners_of(client, doubtful, timeout_ms, silent)}
    found = {each: live_finding(each, _of(owners, each)) for each in opened}
    suspects = {each.topic_partition for each, finding in found.items() if finding is None}
    again = ProducerScan(client, None, max_in_flight, unreadable=unreadable, timeout_ms=timeout_ms)
    still = {each.name for each in open_transactions(again, suspects)} if suspects else set()
    doubt = ""
    if any(found[each] is None and each.name in still and not _of(owners, each) for each in opened):
        # Before and after the coordinators are queried: one that moved meanwhile may be listed by no broker.
        offline |= offline_coordinators(client, timeout_ms)
        if offline:
            doubt = OFFLINE.format(", ".join(map(str, sorted(offline))))
        elif silent:
            doubt = SILENT.format(", ".join(map(str, sorted(silent))))
        elif not sees_every_id(client, timeout_ms=timeout_ms):
            doubt = HIDDEN
    producers_in = cache(lambda topic: _producers_in(client, topic, timeout_ms))
    return [
        found[each] or _suspect(client, each, _of(owners, each), each.name in still, doubt, producers_in, timeout_ms)
        for each in opened
        if each.topic_partition not in (unreadable or ())
    ]


def _may_be_v2(client: KafkaClient, transaction: PartitionTransaction, timeout_ms: float | None) -> bool:
    """Return whether nothing shows that a transaction is one of V1, where only a new owner of the id raises the epoch.

    Each transaction of V2 begins an epoch, so its first record has the sequence 0. A late write of V1 has a later one
    if its producer wrote to the partition before.
    """
    place, producer = transaction.topic_partition, transaction.producer
    deadline = client.deadline(timeout_ms)
    for _ in client.attempts(deadline):
        known = OffsetLookup(client).places([place.topic]).get(place)
        wanted = {} if known is None else {place: (known, producer.first_offset)}
        left_ms = client.remaining_ms(deadline)
        answer = fetch_once(client, wanted, IsolationLevel.READ_UNCOMMITTED, _FIRST_BATCH, left_ms).get(place)
        if isinstance(answer, FetchedChunk) and answer.batches:
            header = answer.batches[0][1]
            # The offsets of groups have no sequences.
            return header.producer_id == producer.producer_id and header.base_sequence in (0, NO_SEQUENCE)
        if answer == ErrorCode.OFFSET_OUT_OF_RANGE:
            break
    # What cannot be read shows nothing; an abort of committed rows is the worse mistake.
    return True


def offline_coordinators(client: KafkaClient, timeout_ms: float | None = None) -> set[int]:
    """Return the partitions of the coordinators' topic without a leader; none if it may not be seen, or none is there.

    No broker lists the transactional ids in such a partition.
    """
    name = TRANSACTION_STATE_TOPIC
    answers = [client.metadata([name], timeout_ms=timeout_ms)]
    code = problem_with(answers[0].get(name), need_leaders=False)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        answers = [each or {} for each in client.topics_by_broker([name]).values()]
    elif code not in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        answers = [client.require_topics([name], need_leaders=False, timeout_ms=timeout_ms)]
    alive = {each.node_id for each in client.brokers()}
    found = [each[name] for each in answers if name in each]
    return {each.partition for topic in found for each in topic.partitions.values() if each.leader not in alive}


def _suspect(
    client: KafkaClient,
    transaction: PartitionTransaction,
    owners: Sequence[Owner],
    is_still_open: bool,
    doubt: str,
    producers_in: Callable[[str], list[ActiveProducer]],
    timeout_ms: float | None,
) -> HangingFinding:
    if not is_still_open:
        return ended_finding(transaction, owners)
    if not owners and doubt:
        return unknown_finding(transaction, doubt, is_hidden=True)
    finding = hanging_finding(transaction, owners, is_v2=client.transaction_version(timeout_ms=timeout_ms) >= TV2)
    if not finding.is_v2 or not finding.is_committed:
        return finding
    if not _may_be_v2(client, transaction, timeout_ms):
        return hanging_finding(transaction, owners, is_v2=False)
    in_topic = producers_in(transaction.topic_partition.topic)
    return hanging_finding(transaction, owners, is_v2=_seen_as_v2(transaction, owners, in_topic))


def _seen_as_v2(
    transaction: PartitionTransaction, owners: Sequence[Owner], in_topic: Iterable[ActiveProducer]
) -> bool | None:
    """Return what the producers of the topic's partitions show about the protocol of a producer one epoch ahead.

    Its newest transaction is complete. V2 begins an epoch with the marker, so that records of this epoch show V1, and a
    marker of it without records shows V2: if the newest transaction wrote it, as one of V1 that was aborted before its
    first record leaves such a marker, too. None if no partition has either.
    """
    following = transaction.producer.producer_id, transaction.producer.producer_epoch + 1
    ended = [
        each for each in in_topic if (each.producer_id, each.producer_epoch) == following and not each.is_in_transaction
    ]
    if any(each.last_sequence != NO_SEQUENCE for each in ended):
        return False
    began_ms = max(each.description.start_time_ms for each in owners)
    return True if any(each.last_timestamp_ms >= began_ms > 0 for each in ended) else None


def _producers_in(client: KafkaClient, topic: str, timeout_ms: float | None) -> list[ActiveProducer]:
    """List the producers of a topic, without waiting for a partition that has no leader.

    The offsets of groups have no sequences, so that their producers show nothing.
    """
    known = None if topic == CONSUMER_OFFSETS_TOPIC else client.metadata([topic], timeout_ms=timeout_ms).get(topic)
    led = () if known is None else (number for number, each in known.partitions.items() if each.leader >= 0)
    scan = ProducerScan(client, unreadable={}, timeout_ms=timeout_ms)
    return [each for some in scan.run([TopicPartition(topic, number) for number in led]).values() for each in some]


def require_verdicts(findings: Iterable[HangingFinding]) -> None:
    """Refuse to go on if the coordinator of one of the transactions may be hidden or offline: it may be live."""
    for each in findings:
        if each.verdict is HangingVerdict.UNKNOWN and each.why != HIDDEN:
            raise UnansweredError(
                f"Cannot tell whether the transaction of producer id {each.transaction.producer.producer_id} hangs: "
                f"{each.why}",
                checked=f"ListTransactions on every broker, and Metadata of {TRANSACTION_STATE_TOPIC}",
                remedy="Start the brokers that have these partitions or do not respond, and try again",
            )
        if each.verdict is HangingVerdict.UNKNOWN:
            raise AuthorizationError(
                f"Cannot tell whether the transaction of producer id {each.transaction.producer.producer_id} hangs: "
                "the principal may not be allowed to see its transactional id",
                checked="ListTransactions on every broker, and DescribeTransactions for a transactional id that does "
                "not exist",
                remedy=SEE_EVERY_ID,
            )


def name_blocker(client: KafkaClient, topic_partition: TopicPartition) -> str:
    """Describe the transaction that blocks a partition and what ends it; a missing response never raises."""
    [(_, words)] = name_blockers(client, [topic_partition])
    return words


def name_blockers(
    client: KafkaClient, topic_partitions: Sequence[TopicPartition], most: int = 1, older_than_ms: int | None = None
) -> Iterator[tuple[list[TopicPartition], str]]:
    """Describe the transactions that block partitions, each with the partitions that it blocks.

    However many partitions there are, the coordinators are queried once, for the first `most` producers in the order of
    the partitions. A live transaction is described once for all its partitions; one that hangs ends in each partition
    by a command of its own. A missing response never raises: the words are why nothing was found. With `older_than_ms`
    only transactions are described that hang, or that began so long ago: by their coordinator's clock then, and by the
    clock of this process now.
    """
    unreadable: dict[TopicPartition, str] = {}
    oldest: dict[TopicPartition, PartitionTransaction] = {}
    blocked: dict[object, list[TopicPartition]] = {}
    findings: dict[TopicPartition, HangingFinding] = {}
    trouble = ""
    try:
        scan = ProducerScan(client, unreadable=unreadable, timeout_ms=_WARNING_TIMEOUT_MS)
        for each in open_transactions(scan, topic_partitions):
            oldest.setdefault(each.topic_partition, each)
        for place in topic_partitions:
            transaction = oldest.get(place)
            # What could not be read, or is not blocked any more, stands alone.
            name = place if transaction is None else transaction.producer.producer_id
            blocked.setdefault(name, []).append(place)
        chosen = [places for _, places in zip(range(most), blocked.values(), strict=False)]
        first = [oldest[place] for places in chosen for place in places if place in oldest]
        if first:
            judged = judge(client, first, timeout_ms=_WARNING_TIMEOUT_MS)
            findings = {each.transaction.topic_partition: each for each in judged}
    except EosKafkaError as error:
        trouble, chosen = str(error), [[place] for place in topic_partitions[:most]]
    commands, at_ms = OperatorCommands.of(client.options), now_ms(client.runtime.clock)
    told: dict[object, tuple[list[TopicPartition], str]] = {}
    for place in (each for places in chosen for each in places):
        finding, why = findings.get(place), trouble or unreadable.get(place, "")
        if older_than_ms is not None and not _is_old(finding, older_than_ms, at_ms):
            continue
        words = f"The transaction could not be identified: {why}" if why else "It ended in the meantime."
        words = words if finding is None else finding.sentence(commands, at_ms)
        is_live = finding is not None and finding.verdict is HangingVerdict.LIVE
        told.setdefault(words if is_live else place, ([], words))[0].append(place)
    yield from islice(told.values(), most)


def _is_old(finding: HangingFinding | None, older_than_ms: int, at_ms: int) -> bool:
    if finding is None:
        return False
    age_ms = finding.age_ms(at_ms)
    return finding.hangs or (age_ms is not None and age_ms >= older_than_ms)


def _of(owners: Mapping[int, tuple[Owner, ...]], each: PartitionTransaction) -> tuple[Owner, ...]:
    return owners.get(each.producer.producer_id, ())


def _owners_of(
    client: KafkaClient, opened: Iterable[PartitionTransaction], timeout_ms: float | None, silent: set[int] | None
) -> dict[int, tuple[Owner, ...]]:
    """Return the transactional ids of producer ids, as their coordinators describe them; `silent` as in the listing."""
    producer_ids = {each.producer.producer_id for each in opened}
    if not producer_ids:
        # A request without a filter lists all ids.
        return {}
    # A broker that does not know the filter lists every id.
    listed = {
        each.transactional_id: each.producer_id
        for each in list_by_broker(client, producer_ids=producer_ids, timeout_ms=timeout_ms, silent=silent)
        if each.producer_id in producer_ids
    }
    found: dict[int, tuple[Owner, ...]] = {}
    for name, description in describe_transactions(client, list(listed), timeout_ms=timeout_ms).items():
        # It may have moved since it was listed; report the broker that described it.
        node = client.find_coordinator(CoordinatorType.TRANSACTION, name, timeout_ms=timeout_ms)
        found[listed[name]] = (*found.get(listed[name], ()), Owner(node, description))
    return found
