"""The Fetch API: records, up to the last stable offset for a reader of committed data (rules D.1).

A fetch that finds less than its minimum waits until a partition changes or its `max_wait_ms` has passed. It reads no
data until it answers, so the list of aborted transactions belongs to exactly the bytes that are sent.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, require
from broker_core.broker.fetch_sessions import NO_SESSION, FetchContext, FetchTarget
from broker_core.broker.request_context import ApiCall, isolation_of
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import NO_LEADER_EPOCH, IsolationLevel, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.fetch_response import FetchedPartition, FetchedRecords, FetchedTopic
from broker_core.wire.served import echo

_UNKNOWN = -1
_FIRST_WITH_REPLICA_STATE = 15


# Errors that Kafka finds before it looks into the log, with an empty list of aborted transactions.
_BEFORE_THE_LOG = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)


def fetch(context: ApiCall[m.FetchRequest]) -> FetchedRecords | None:
    """Answer at once if there is enough data, an error, or no `max_wait_ms`; otherwise wait."""
    try:
        isolation_of(context.body.isolation_level)
        fetch_context = context.broker.sessions.open(
            context.body, context.version, str(context.principal), context.now_ms
        )
    except KafkaError as error:
        return FetchedRecords(error.code, NO_SESSION)
    if _try(context, fetch_context, context.now_ms, is_first=True) or context.answered:
        return None
    names = context.broker.metadata.names
    context.wait(
        [found for target in fetch_context.targets if (found := _find(names, target)) is not None],
        context.now_ms + context.body.max_wait_ms,
        lambda now_ms: _try(context, fetch_context, now_ms),
        lambda now_ms: _answer(context, fetch_context, now_ms),
    )
    return None


def _try(context: ApiCall[m.FetchRequest], fetch_context: FetchContext, now_ms: int, *, is_first: bool = False) -> bool:
    if (
        context.body.max_wait_ms <= 0
        or not fetch_context.targets
        or _is_worth_answering(context, fetch_context, now_ms, is_first)
    ):
        _answer(context, fetch_context, now_ms)
        return True
    return False


def _is_worth_answering(
    context: ApiCall[m.FetchRequest], fetch_context: FetchContext, now_ms: int, is_first: bool
) -> bool:
    isolation = isolation_of(context.body.isolation_level)
    # If the minimum is larger than the maximum of the response, the maximum is enough. As in Kafka, the maximum of
    # a partition is not enough: its reader waits for other partitions.
    wanted = min(context.body.min_bytes, _most_bytes(context))
    found = 0
    for target in fetch_context.targets:
        try:
            log = _log(context, target, now_ms)
            if _diverging(target, log) is not None:
                return True
            if not log.log_start_offset <= target.fetch_offset <= log.log_end_offset:
                return True
            limit = max(target.max_bytes, 1)
            readable = log.stable_bytes_from(target.fetch_offset, isolation, limit)
            if is_first and not found and limit == readable < wanted:
                # As in Kafka, a batch that is sent whole counts whole, but not if it comes during the wait.
                readable = max(readable, len(log.read(target.fetch_offset, 0, isolation).records))
        except KafkaError:
            return True
        found += readable
        if found >= wanted or log.goes_on_after_segment(target.fetch_offset, isolation):
            return True
    return False


def _most_bytes(context: ApiCall[m.FetchRequest]) -> int:
    """Return the size limit of the response: the request's, the broker's, or what a quota allows at once."""
    most: int = min(context.body.max_bytes, context.broker.config.fetch_max_bytes)
    allowed = context.broker.quotas.most_fetched_bytes(context.principal.name, context.client_id)
    return most if allowed is None else min(most, allowed)


def _find(names: Mapping[UUID, str], target: FetchTarget) -> TopicPartition | None:
    topic = target.key.topic
    name = names.get(topic) if isinstance(topic, UUID) else topic
    return TopicPartition(name, target.key.partition) if name is not None else None


def _in_session(context: ApiCall[m.FetchRequest]) -> Iterable[TopicPartition]:
    """Return what a request fetches because its session has it, named again or not."""
    names = context.broker.metadata.names
    for topic, partition in context.broker.sessions.kept_for(context.body, context.version):
        name = names.get(topic) if isinstance(topic, UUID) else topic
        if name is not None:
            yield TopicPartition(name, partition)


def _log(context: ApiCall[m.FetchRequest], target: FetchTarget, now_ms: int) -> PartitionLog:
    topic_partition = _find(context.broker.metadata.names, target)
    if topic_partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {target.key.topic}")
    if context.broker.authorizer is not None:
        _require_reading(context, topic_partition.topic)
    return context.broker.led_log(topic_partition, now_ms, max(target.leader_epoch, NO_LEADER_EPOCH))[0]


def _require_reading(context: ApiCall[m.FetchRequest], topic: str) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED if the client may not read; a follower needs CLUSTER_ACTION instead."""
    if _replica_id(context) < 0:
        require(context, Operation.READ, ResourceType.TOPIC, topic)
    elif not is_allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{context.principal} is not a broker")


def _replica_id(context: ApiCall[m.FetchRequest]) -> int:
    body = context.body
    if context.version < _FIRST_WITH_REPLICA_STATE:
        return int(body.replica_id)
    return _UNKNOWN if body.replica_state is None else int(body.replica_state.replica_id)


def _diverging(target: FetchTarget, log: PartitionLog) -> tuple[int, int] | None:
    """Return the epoch and end offset at which the reader's history diverges from ours (KIP-595), if it does.

    Raises OFFSET_OUT_OF_RANGE if the reader's epoch is unknown here: there is no offset to send it back to.
    """
    if target.last_fetched_epoch <= NO_LEADER_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
    if NO_LEADER_EPOCH in (epoch, end_offset):
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the end of leader epoch {target.last_fetched_epoch}, the last one that the reader fetched, is unknown",
        )
    if end_offset < target.fetch_offset or epoch < target.last_fetched_epoch:
        return epoch, end_offset
    return None


def _answer(context: ApiCall[m.FetchRequest], fetch_context: FetchContext, now_ms: int) -> None:
    isolation = isolation_of(context.body.isolation_level)
    left_bytes = _most_bytes(context)
    fetched = []
    found_bytes = 0
    for target in fetch_context.targets:
        partition = _read(context, target, left_bytes, isolation, anything_read=bool(found_bytes), now_ms=now_ms)
        size_bytes = len(partition.records)
        if not size_bytes and left_bytes < target.max_bytes and target.fetch_offset < _bound(partition, isolation):
            # The next batch does not fit, so the response is full. A part of a batch would be read from each other
            # partition, to no use.
            left_bytes = 0
        left_bytes -= size_bytes
        found_bytes += size_bytes
        fetched.append((target, partition))
    session = fetch_context.session
    throttle_ms = context.broker.quotas.fetched(context.principal.name, context.client_id, found_bytes, now_ms)
    if throttle_ms:
        # The session stays as it is, so that the next response contains what this one leaves out.
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
        context.answer(
            FetchedRecords(session_id=session.session_id if session and fetch_context.incremental else NO_SESSION)
        )
        return
    topics: dict[str | UUID | None, FetchedTopic] = {}
    for target, partition in fetched:
        marks = (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
        must_answer = partition.error_code != ErrorCode.NONE or partition.diverging_epoch is not None
        if fetch_context.incremental and not (partition.records or must_answer or target.known_marks != marks):
            continue
        # A partition with an error is sent again next time: the client knows only what it was sent without an error.
        target.known_marks = None if must_answer else marks
        name = target.key.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchedTopic(name, [])
        topic.partitions.append(partition)
    context.answer(
        FetchedRecords(session_id=session.session_id if session else NO_SESSION, responses=list(topics.values()))
    )


def _bound(partition: FetchedPartition, isolation: IsolationLevel) -> int:
    """Return the end offset for the reader, which is below every offset if the partition was not read."""
    return partition.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else partition.high_watermark


def _read(
    context: ApiCall[m.FetchRequest],
    target: FetchTarget,
    left_bytes: int,
    isolation: IsolationLevel,
    *,
    anything_read: bool,
    now_ms: int,
) -> FetchedPartition:
    index = target.key.partition
    try:
        log = _log(context, target, now_ms)
        diverging = _diverging(target, log)
        if diverging is not None:
            return FetchedPartition(
                index,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=diverging,
            )
        # The first batch is sent whole even if it is larger than the limits; otherwise the reader could never pass it.
        found = log.read(
            target.fetch_offset, max(0, min(target.max_bytes, left_bytes)), isolation, min_one_batch=not anything_read
        )
    except KafkaError as error:
        return FetchedPartition(index, error.code, aborted_transactions=[] if error.code in _BEFORE_THE_LOG else None)
    return FetchedPartition(
        index,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=found.aborted,
        records=found.records,
    )


APIS = (
    # A follower needs CLUSTER_ACTION instead; the error without it is the same.
    api(
        m.FetchRequest,
        (4, 18),
        fetch,
        "READ TOPIC",
        "CLUSTER_ACTION CLUSTER: TOPIC_AUTHORIZATION_FAILED",
        echoes=echo("topics", "responses", echo("partitions", partition_index="partition")),
        unspecific=range(13, 100),
        in_session=_in_session,
    ),
)
