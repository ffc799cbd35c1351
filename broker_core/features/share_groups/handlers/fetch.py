"""The APIs by which members of share groups fetch and acknowledge records (KIP-932, KIP-1206, KIP-1222).

A fetch acquires records of all partitions of its share session, as far as some are available; otherwise it waits like
any fetch. It may acknowledge records of earlier fetches, which happens first.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.request_context import ApiCall
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.handlers.acknowledge import (
    acknowledge_all,
    complete_answer,
    error_answer,
    partition_error,
    request_error,
    session_key,
)
from broker_core.features.share_groups.partitions.acquisition import (
    RECORD_LIMIT,
    Acquired,
    Acquisition,
    Fetched,
    Limits,
    acquired_bytes,
)
from broker_core.features.share_groups.partitions.share_partition import SharePartition
from broker_core.features.share_groups.partitions.share_partitions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SharedPartition,
    ShareSession,
)
from broker_core.features.share_groups.states.state import Outcome, SharePartitionKey
from broker_core.types import TopicPartition
from broker_core.wire import messages as m

_FIRST_WITH_MODES = 2
_PartitionData: TypeAlias = m.ShareFetchResponse.ShareFetchableTopicResponse.PartitionData


class _Result(NamedTuple):
    """The response for one partition."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()


def fetch(context: ApiCall[m.ShareFetchRequest]) -> m.ApiMessage | None:
    """Acknowledge what the request acknowledges, then answer at once with records or errors, or wait for them."""
    error = request_error(context)
    if error:
        return error_answer(context, error)
    body = context.body
    try:
        _check_modes(context)
        session = _session(context)
    except KafkaError as failure:
        if failure.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return error_answer(context, failure.code)
        # The client would try again at once.
        answer, deadline_ms = error_answer(context, failure.code), context.now_ms + max(body.max_wait_ms, 0)
        context.wait((), deadline_ms, lambda _now_ms: False, lambda _now_ms: context.answer(answer))
        return None
    acknowledged = acknowledge_all(context) if _acknowledges(body) else {}
    _Fetch(context, session, acknowledged).begin()
    return None


def _check_modes(context: ApiCall[m.ShareFetchRequest]) -> None:
    """Raise INVALID_REQUEST for an unknown mode, or a renewal that fetches too: renewals are answered at once."""
    body = context.body
    if context.version >= _FIRST_WITH_MODES and body.share_acquire_mode not in (0, RECORD_LIMIT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no acquire mode {body.share_acquire_mode}")
    if context.version >= _FIRST_WITH_MODES and body.is_renew_ack:
        if body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a renewal of locks does not fetch")


def _acknowledges(body: m.ShareFetchRequest) -> bool:
    return any(partition.acknowledgement_batches for topic in body.topics for partition in topic.partitions)


def _session(context: ApiCall[m.ShareFetchRequest]) -> ShareSession | None:
    """Return the request's session, None for the last request of one; raise the error of its epoch."""
    body, shares = context.body, share_broker(context.broker).partitions
    key = session_key(context)
    names = context.broker.metadata.names
    named = [
        SharedPartition(topic_id, partition.partition_index, names.get(topic_id))
        for topic in body.topics
        for topic_id in [topic.topic_id or m.NULL_UUID]
        for partition in topic.partitions
    ]
    if body.share_session_epoch == FINAL_EPOCH:
        shares.session(key)
        return None
    if body.share_session_epoch == INITIAL_EPOCH:
        if _acknowledges(body):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the first request of a session acknowledges records")
        session = shares.open_session(key, context.connection, named)
        connection = context.connection
        connection.on_lost = lambda _now_ms: shares.connection_lost(connection, key.group_id)
        return session
    session = shares.session(key)
    session.advance(body.share_session_epoch)
    session.update(
        named,
        [(topic.topic_id or m.NULL_UUID, each) for topic in body.forgotten_topics_data for each in topic.partitions],
    )
    return session


class _Fetch:
    """One fetch, which may wait; the acknowledgments are done."""

    def __init__(
        self,
        context: ApiCall[m.ShareFetchRequest],
        session: ShareSession | None,
        acknowledged: dict[SharedPartition, Outcome],
    ) -> None:
        self._context = context
        self._key = session_key(context)
        self._session = session
        self._acknowledged = acknowledged
        self._errors: dict[SharedPartition, _Result] = {}
        self._wanted: dict[SharedPartition, SharePartition] = {}
        body = context.body
        self._has_modes = context.version >= _FIRST_WITH_MODES
        strict = self._has_modes and body.share_acquire_mode == RECORD_LIMIT
        self._limits = Limits(body.max_records, body.batch_size, strict)
        self._isolation = share_broker(context.broker).fetch_settings(self._key.group_id).isolation
        broker = context.broker
        allowed = broker.quotas.most_fetched_bytes(context.principal.name, context.client_id)
        self._max_bytes = min(body.max_bytes, broker.config.fetch_max_bytes, *([] if allowed is None else [allowed]))
        self._min_bytes = min(body.min_bytes, self._max_bytes)

    def begin(self) -> None:
        context, body = self._context, self._context.body
        is_renewal = self._has_modes and body.is_renew_ack
        if self._session is not None and not is_renewal:
            self._find_partitions()
        if not self._wanted or body.max_wait_ms <= 0 or self._try(context.now_ms):
            if not context.answered:
                self._answer(context.now_ms)
            return
        keys = [partition.topic_partition for partition in self._wanted.values()]
        context.wait(keys, context.now_ms + body.max_wait_ms, self._try, self._answer)

    def _find_partitions(self) -> None:
        """Find the share partitions of the session, in another order each time, so that each is first at times."""
        assert self._session is not None
        context, body = self._context, self._context.body
        valid = []
        for each in self._session.partitions:
            error = partition_error(context, each)
            if error:
                self._errors[each] = _Result(error)
            else:
                valid.append(each)
        turn = max(body.share_session_epoch, 0) % len(valid) if valid else 0
        if not self._limits.max_records or not self._max_bytes:
            return
        for each in (*valid[turn:], *valid[:turn]):
            key = SharePartitionKey(self._key.group_id, each.topic_id, each.partition)
            try:
                self._wanted[each] = share_broker(context.broker).partitions.get(key, context.now_ms)
            except KafkaError as error:
                self._errors[each] = _Result(error.code)

    def _try(self, now_ms: int) -> bool:
        found = 0
        for partition in self._acquirable().values():
            try:
                log, _ = self._context.broker.led_log(partition.topic_partition, now_ms)
                offset = partition.next_fetch_offset()
                if offset < log.log_start_offset or offset > log.log_end_offset:
                    found = self._min_bytes
                    break
                found += log.stable_bytes_from(offset, self._isolation, max(self._min_bytes, 1))
            except KafkaError:
                found = self._min_bytes
                break
        else:
            if not found or found < self._min_bytes:
                return False
        self._answer(now_ms)
        return True

    def _acquirable(self) -> dict[SharedPartition, SharePartition]:
        """Return the share partitions that are still current and may give out records."""
        shares = share_broker(self._context.broker).partitions
        return {
            each: partition
            for each, partition in self._wanted.items()
            if shares.find(partition.key) is partition and partition.can_acquire
        }

    def _answer(self, now_ms: int) -> None:
        outcomes = {**self._acquire(now_ms), **self._errors}
        context = self._context
        size = sum(len(outcome.records) for outcome in outcomes.values())
        throttle_ms = context.broker.quotas.fetched(context.principal.name, context.client_id, size, now_ms)
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
        self._send(outcomes)
        if context.body.share_session_epoch == FINAL_EPOCH:
            share_broker(context.broker).partitions.close_session(self._key)

    def _acquire(self, now_ms: int) -> dict[SharedPartition, _Result]:
        acquirable = self._acquirable()
        outcomes = {}
        share = max(self._max_bytes // len(acquirable), 1) if acquirable else 0
        count, any_read = 0, False
        for each, partition in acquirable.items():
            offset = partition.next_fetch_offset()
            try:
                log, _ = self._context.broker.led_log(partition.topic_partition, now_ms)
                if offset < log.log_start_offset:
                    # The records were deleted; the next fetch gets what is there.
                    partition.follow_log_start(log.log_start_offset)
                    outcomes[each] = _Result()
                    continue
                found = log.read(offset, share, self._isolation, min_one_batch=not any_read)
            except KafkaError as error:
                outcomes[each] = _Result(error.code)
                continue
            any_read = any_read or bool(found.records)
            fetched = Fetched.of(bytes(found.records), found.aborted)
            limits = self._limits._replace(max_records=self._limits.max_records - count)
            acquired = Acquisition(partition, self._key.member_id, fetched, limits, now_ms).run(offset)
            count += sum(part.size for part in acquired)
            share_broker(self._context.broker).partitions.lock_changed(partition)
            outcomes[each] = _Result(records=acquired_bytes(fetched, acquired), acquired=tuple(acquired))
        return outcomes

    def _send(self, outcomes: dict[SharedPartition, _Result]) -> None:
        is_first = self._context.body.share_session_epoch == INITIAL_EPOCH
        answers: dict[tuple[UUID, int], _PartitionData] = {}
        for each, outcome in outcomes.items():
            named = self._session is not None and self._session.must_answer(
                each, has_records=bool(outcome.records), has_error=bool(outcome.error)
            )
            if is_first or named:
                answers[each[:2]] = _partition_data(each.partition, outcome)
        for each, acknowledged in self._acknowledged.items():
            answer = answers.setdefault(each[:2], _partition_data(each.partition, _Result()))
            answer.acknowledge_error_code = acknowledged.error
            answer.acknowledge_error_message = acknowledged.message
        form = m.ShareFetchResponse.ShareFetchableTopicResponse
        self._context.answer(complete_answer(self._context, form, answers))


def _partition_data(partition: int, outcome: _Result) -> _PartitionData:
    form = _PartitionData
    return form(
        partition_index=partition,
        error_code=outcome.error,
        acknowledge_error_code=ErrorCode.NONE,
        records=outcome.records,
        acquired_records=[form.AcquiredRecords(**acquired._asdict()) for acquired in outcome.acquired],
    )


def _in_session(context: ApiCall[m.ShareFetchRequest]) -> Iterable[TopicPartition]:
    """Return what a request fetches because its session has it, named again or not."""
    body = context.body
    if body.share_session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return
    forgotten = {(topic.topic_id, each) for topic in body.forgotten_topics_data for each in topic.partitions}
    for each in share_broker(context.broker).partitions.shared_by(session_key(context)):
        if each.topic is not None and each[:2] not in forgotten:
            yield TopicPartition(each.topic, each.partition)


APIS = (api(m.ShareFetchRequest, (1, 2), fetch, "READ GROUP", "READ TOPIC", in_session=_in_session),)
