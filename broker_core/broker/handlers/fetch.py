"""Hand out records: up to the last stable offset to a reader of committed data (rules D.1).

A fetch that finds less than it asked for waits until a partition moves or its time is up. While it waits it
holds no data; it reads when it answers, so the aborted list belongs to exactly the bytes that go out.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from broker_core.broker.call import Call
from broker_core.broker.fetch_sessions import NO_SESSION, FetchContext, FetchTarget
from broker_core.broker.purgatory import Waiting
from broker_core.broker.rights import is_allowed, require
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from broker_core.wire import messages as m

_UNKNOWN = -1
_FIRST_DIVERGING_VERSION = 12
_FIRST_WITH_REPLICA_STATE = 15


@dataclass(slots=True)
class _Outcome:
    """Hold what one partition answers."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    high_watermark: int = _UNKNOWN
    last_stable_offset: int = _UNKNOWN
    log_start_offset: int = _UNKNOWN
    aborted: list[Any] | None = None
    diverging: tuple[int, int] | None = None

    def told(self) -> tuple[int, ...]:
        return (self.high_watermark, self.last_stable_offset, self.log_start_offset)

    @property
    def must_answer(self) -> bool:
        return self.error != ErrorCode.NONE or self.diverging is not None


def fetch(call: Call) -> None:
    """Answer at once if there is enough, an error or no patience; else wait."""
    try:
        call.isolation()
        context = call.broker.sessions.open(call.body, call.version, str(call.principal), call.now_ms)
    except KafkaError as error:
        call.answer(m.FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[]))
        return
    if _try(call, context, call.now_ms) or call.answered:
        return
    waiting = Waiting(
        keys=[tp for target in context.targets if (tp := _find(call, target)) is not None],
        deadline_ms=call.now_ms + call.body.max_wait_ms,
        attempt=call.guarded(lambda now_ms: _try(call, context, now_ms), True),
        expire=call.guarded(lambda now_ms: _answer(call, context, now_ms), None),
    )
    call.broker.purgatory.wait(waiting)
    call.abandon = lambda: call.broker.purgatory.cancel(waiting)


def _try(call: Call, context: FetchContext, now_ms: int) -> bool:
    if call.body.max_wait_ms <= 0 or not context.targets or _is_worth_answering(call, context, now_ms):
        _answer(call, context, now_ms)
        return True
    return False


def _is_worth_answering(call: Call, context: FetchContext, now_ms: int) -> bool:
    """Say whether there is an error to tell, or enough to read (counted without reading it)."""
    isolation = call.isolation()
    most = min(call.body.max_bytes, call.broker.config.fetch_max_bytes)
    found = 0
    for target in context.targets:
        try:
            log = _log(call, target, now_ms)
            if _diverging(call, target, log) is not None:
                return True
            if not log.log_start_offset <= target.fetch_offset <= log.log_end_offset:
                return True
            readable = log.stable_bytes_from(target.fetch_offset, isolation, max(target.max_bytes, 1))
        except KafkaError:
            return True
        # A reader that asks for more than it is willing to take gets what it takes.
        found += readable
        if found >= min(call.body.min_bytes, most) or 0 < target.max_bytes <= readable:
            return True
    return False


def _find(call: Call, target: FetchTarget) -> TopicPartition | None:
    topic = target.key.topic
    name = call.broker.catalog.names.get(topic) if isinstance(topic, UUID) else topic
    return TopicPartition(name, target.key.partition) if name is not None else None


def _log(call: Call, target: FetchTarget, now_ms: int) -> PartitionLog:
    topic_partition = _find(call, target)
    if topic_partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {target.key.topic}")
    if call.broker.authorizer is not None:
        _require_reading(call, topic_partition.topic)
    return call.broker.led_log(topic_partition, now_ms, target.leader_epoch)[0]


def _require_reading(call: Call, topic: str) -> None:
    """Raise 29 for who may not read; a reader that says it is a broker needs the right of one instead."""
    if _replica_id(call) < 0:
        require(call, Operation.READ, ResourceType.TOPIC, topic)
    elif not is_allowed(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{call.principal} is not a broker")


def _replica_id(call: Call) -> int:
    body = call.body
    if call.version < _FIRST_WITH_REPLICA_STATE:
        return int(body.replica_id)
    return _UNKNOWN if body.replica_state is None else int(body.replica_state.replica_id)


def _diverging(call: Call, target: FetchTarget, log: PartitionLog) -> tuple[int, int] | None:
    """Return the epoch and end offset up to which the reader's history agrees with ours (KIP-595), if it parts.

    Raises 1 when nothing is known of an epoch the reader has data of: there is no place to send it back to.
    """
    if call.version < _FIRST_DIVERGING_VERSION or target.last_fetched_epoch <= NO_LEADER_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
    if NO_LEADER_EPOCH in (epoch, end_offset):
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the end of leader epoch {target.last_fetched_epoch}, which the reader fetched last, is not known here",
        )
    if end_offset < target.fetch_offset or epoch < target.last_fetched_epoch:
        return epoch, end_offset
    return None


def _answer(call: Call, context: FetchContext, now_ms: int) -> None:
    budget = call.body.max_bytes
    budget = min(budget, call.broker.config.fetch_max_bytes)
    topics: dict[Any, list[Any]] = {}
    anything_read = False
    for target in context.targets:
        outcome = _read(call, target, budget, anything_read=anything_read, now_ms=now_ms)
        budget -= len(outcome.records)
        anything_read = anything_read or bool(outcome.records)
        if context.incremental and not _has_news(target, outcome):
            continue
        # An error is told again next time: only what went out without one is known to the client.
        target.told = None if outcome.must_answer else outcome.told()
        topics.setdefault(target.key.topic, []).append(_partition_data(call, target, outcome))
    by_id = call.version >= 13
    response = m.FetchResponse
    call.answer(
        response(
            error_code=0,
            session_id=context.session.session_id if context.session else NO_SESSION,
            responses=[
                response.FetchableTopicResponse(**{"topic_id" if by_id else "topic": topic}, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
    )


def _has_news(target: FetchTarget, outcome: _Outcome) -> bool:
    return bool(outcome.records) or outcome.must_answer or target.told != outcome.told()


def _read(call: Call, target: FetchTarget, budget: int, *, anything_read: bool, now_ms: int) -> _Outcome:
    isolation = call.isolation()
    try:
        log = _log(call, target, now_ms)
        diverging = _diverging(call, target, log)
        if diverging is not None:
            return _Outcome(
                diverging=diverging,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
            )
        # The first batch goes out whole even if it is larger than the limits, or the reader could never pass it.
        found = log.read(
            target.fetch_offset, max(0, min(target.max_bytes, budget)), isolation, min_one_batch=not anything_read
        )
    except KafkaError as error:
        return _Outcome(error=error.code)
    return _Outcome(
        records=found.records,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted=found.aborted,
    )


def _partition_data(call: Call, target: FetchTarget, outcome: _Outcome) -> Any:
    form = m.FetchResponse.FetchableTopicResponse.PartitionData
    hints = {}
    if outcome.diverging is not None:
        epoch, end_offset = outcome.diverging
        hints["diverging_epoch"] = form.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    aborted = outcome.aborted
    return form(
        partition_index=target.key.partition,
        error_code=outcome.error,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable_offset,
        log_start_offset=outcome.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [
            form.AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in aborted
        ],
        records=outcome.records,
        **hints,
    )
