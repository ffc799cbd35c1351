"""The Produce API: the checks of rules C.1 in their order, with a type for the result of each stage.

For a transactional batch the coordinator has to confirm that its partition belongs to the transaction. Before
Produce 12 the client has added the partition and the leader verifies it (KIP-890 part 1); from 12 on the
leader adds the partition itself (part 2). The log returns a guard first and checks it at the append, so a
marker written in between makes the append fail instead of opening a transaction that never ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal, require
from broker_core.broker.broker import Broker
from broker_core.broker.marker_writer import ADD, OLD_ERROR, VERIFY, coordinator_answers
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, InvalidBatch, KafkaError
from broker_core.log.partition_log import AppendResult, PartitionLog
from broker_core.log.producer_state import SENTINEL, Guard
from broker_core.records.compression import Bytes, Compression
from broker_core.records.header import HEADER_SIZE, MAGIC, MAGIC_POSITION, BatchHeader, framed_size
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import INTERNAL_TOPICS, ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.compact_fields import blank, blank_response
from broker_core.wire.served import echo

_TopicData: TypeAlias = m.ProduceRequest.TopicProduceData
_PartitionData: TypeAlias = m.ProduceRequest.TopicProduceData.PartitionProduceData
_TopicResponse: TypeAlias = m.ProduceResponse.TopicProduceResponse
_PartitionResponse: TypeAlias = m.ProduceResponse.TopicProduceResponse.PartitionProduceResponse
_LAST_OLD_ERROR_VERSION = 10
_FIRST_ADDING_VERSION = 12
_FIRST_BY_ID_VERSION = 13
_FIRST_ZSTD_VERSION = 7
_FIRST_LEADER_HINT_VERSION = 10
# The client id that may write to an internal topic, for repairs; the coordinator reads the records at its next load.
_REPAIRER = "__admin_client"
# A temporary failure of the verification is answered with the one retriable code that every client knows.
_RETRY_SAFELY = frozenset({
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
# With these errors Kafka's response has no log start offset; with all other errors of the log it has.
_SAY_NOTHING_OF_THE_LOG = frozenset({
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip


@dataclass(slots=True)
class _Sent:
    """Stage 1: the first batch that the client sent for one partition, read as far as its frame."""

    topic_entry: _TopicData
    entry: _PartitionData
    records: Bytes
    # None when the batch is incomplete.
    size_bytes: int | None
    # None when the batch is too short for a header, or of an older magic.
    header: BatchHeader | None

    @classmethod
    def read(cls, topic_entry: _TopicData, entry: _PartitionData) -> "_Sent":
        """Find the end of the first batch; raises `InvalidBatch` for bytes that are no batch."""
        records = entry.records or b""
        size_bytes = framed_size(records)
        header = None
        if size_bytes is not None and size_bytes >= HEADER_SIZE and records[MAGIC_POSITION] == MAGIC:
            header = BatchHeader.parse(records)
        return cls(topic_entry, entry, records, size_bytes, header)


@dataclass(slots=True)
class _Ready:
    """Stage 2: a batch that passed the checks of request and partition, and its log."""

    sent: _Sent
    topic_partition: TopicPartition
    records: Bytes
    log: PartitionLog
    leader_epoch: int
    guard: Guard | None = None


@dataclass(slots=True)
class _Refused:
    """The error for a batch that is not appended; `topic_partition` is None if the partition is not known."""

    sent: _Sent
    topic_partition: TopicPartition | None
    error: KafkaError
    log_start_offset: int = -1
    # As in Kafka, the response explains records that are refused and transactions that cannot be verified.
    is_explained: bool = False


@dataclass(slots=True)
class _Appended:
    """Stage 3: a batch that was appended."""

    sent: _Sent
    result: AppendResult


_Answer = _Appended | _Refused


@dataclass(slots=True)
class _Work:
    """The batches of a request, in its order, while it may wait for the coordinator."""

    context: ApiCall[m.ProduceRequest]
    parts: list[_Ready | _Refused]
    give_up_ms: int
    # Whether the leader adds the partitions to the transaction (KIP-890, part 2).
    is_adding: bool
    # The broker and its topics when the logs were found.
    found: tuple[Broker, int]
    asked_ms: float = 0.0


def produce(context: ApiCall[m.ProduceRequest]) -> None:
    entries = [(topic, entry) for topic in context.body.topic_data for entry in topic.partition_data]
    try:
        sent = [_Sent.read(*each) for each in entries]
    except InvalidBatch as error:
        # As in Kafka, all batches are framed before any is checked: a malformed one fails the whole request.
        unread = [_Sent(topic, entry, b"", None, None) for topic, entry in entries]
        refused = _all_refused(unread, ErrorCode.CORRUPT_MESSAGE, str(error))
        for each in refused:
            each.is_explained = True
        _answer(context, refused)
        return
    parts = [_check(context, each) for each in sent]
    unfit = _check_transaction(context, sent)
    if unfit is not None:
        _answer(context, unfit)
        return
    give_up_ms = context.now_ms + context.broker.config.add_partitions_retry_backoff_max_ms
    found = context.broker, context.broker.metadata.topics_version
    _verify(_Work(context, parts, give_up_ms, context.version >= _FIRST_ADDING_VERSION, found), context.now_ms)


def _check(context: ApiCall[m.ProduceRequest], sent: _Sent) -> _Ready | _Refused:
    """Find the partition, its log and its one batch (rules C.1/2 to C.1/6 and C.1/9 to C.1/11)."""
    broker, topic_partition = context.broker, None
    try:
        name = sent.topic_entry.name
        if context.version >= _FIRST_BY_ID_VERSION:
            name = broker.metadata.topic_by_id(sent.topic_entry.topic_id or m.NULL_UUID).name
        topic_partition = TopicPartition(name, sent.entry.index)
        require(context, Operation.WRITE, ResourceType.TOPIC, name)
        broker.metadata.leadership(topic_partition)
        records = _one_batch(sent, context.version)
        if context.body.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={context.body.acks} is none of -1, 0, 1")
        if name in INTERNAL_TOPICS and context.client_id != _REPAIRER:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: only coordinators write to it")
        log, leader_epoch = broker.led_log(topic_partition, context.now_ms)
    except KafkaError as error:
        return _Refused(sent, topic_partition, error)
    return _Ready(sent, topic_partition, records, log, leader_epoch)


def _one_batch(sent: _Sent, version: int) -> Bytes:
    """Return the batch; refuse all but one whole one. An incomplete second batch is cut off, as in Kafka."""
    records, size_bytes, header = sent.records, sent.size_bytes, sent.header
    if size_bytes is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the {len(records)} bytes contain no complete batch")
    if records[MAGIC_POSITION] != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"magic {records[MAGIC_POSITION]} is not supported, only {MAGIC}")
    if (
        header is not None
        and version < _FIRST_ZSTD_VERSION
        and header.has_codec
        and header.compression is Compression.ZSTD
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or newer")
    if size_bytes == len(records):
        return records
    try:
        is_followed = framed_size(records, size_bytes) is not None
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if is_followed:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition's records must be exactly one batch")
    return records[:size_bytes]


def _check_transaction(context: ApiCall[m.ProduceRequest], sent: list[_Sent]) -> list[_Refused] | None:
    """Refuse all partitions if the request's transactional batches are inconsistent (rules C.1/1 and C.1/7)."""
    transactional = [each.header for each in sent if each.header is not None and each.header.is_transactional]
    if not transactional:
        return None
    refused = None
    transactional_id = context.body.transactional_id
    if transactional_id is None:
        refused = _all_refused(
            sent, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
        )
    elif refusal(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        refused = _all_refused(
            sent,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{context.principal} has no right to WRITE as transactional id {transactional_id!r}",
        )
    if len({(each.producer_id, each.producer_epoch) for each in transactional if each.has_producer}) > 1:
        refused = _all_refused(
            sent, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer"
        )
    return refused


def _all_refused(sent: list[_Sent], code: ErrorCode, message: str) -> list[_Refused]:
    return [_Refused(each, None, KafkaError(code, message)) for each in sent]


def _verify(work: _Work, now_ms: int) -> None:
    """Verify with the coordinator the partitions not known to be in the transaction (rules C.3), then append."""
    asking = _guarded(work)
    if not asking:
        _append_all(work, now_ms)
        return
    context, broker = work.context, work.context.broker
    mode = ADD if work.is_adding else OLD_ERROR if context.version <= _LAST_OLD_ERROR_VERSION else VERIFY
    header = work.parts[next(iter(asking.values()))[0]].sent.header
    assert header is not None
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    work.asked_ms = broker.meters.stopwatch()
    answers, is_asked = coordinator_answers(broker, context.body.transactional_id or "", producer, asking, mode, now_ms)
    if work.is_adding and ErrorCode.CONCURRENT_TRANSACTIONS in answers.values() and now_ms < work.give_up_ms:
        # The previous transaction is still being completed: a short wait here saves the client a round trip.
        broker.meters.verified(work.asked_ms)
        again_ms = now_ms + broker.config.add_partitions_retry_backoff_ms
        broker.purgatory.at(min(again_ms, work.give_up_ms), context.guarded(partial(_verify_again, work), None))
        return
    for topic_partition, code in answers.items():
        if code:
            error = _error_of_answer(code, is_adding=work.is_adding)
            for index in asking[topic_partition]:
                work.parts[index] = _Refused(
                    work.parts[index].sent, topic_partition, error, is_explained=bool(error.message)
                )
    if work.is_adding and ErrorCode.NONE in answers.values():
        # The coordinator's record must be durable first: data that survives a crash without it would
        # belong to a transaction that never ends.
        broker.sync_queue.put(context.guarded(partial(_append_verified, work), None))
        return
    if is_asked:
        broker.meters.verified(work.asked_ms)
    _append_all(work, now_ms)


def _guarded(work: _Work) -> dict[TopicPartition, list[int]]:
    """Get a guard for each transactional batch; return, by partition, the indexes of those to verify.

    There may be several indexes, since a request may name a partition twice; the answer is for each of its batches.
    """
    context = work.context
    if context.body.transactional_id is None or not (
        work.is_adding or context.broker.config.transaction_partition_verification_enable
    ):
        return {}
    asking: dict[TopicPartition, list[int]] = {}
    for index, part in enumerate(work.parts):
        if isinstance(part, _Refused):
            continue
        header = part.sent.header
        # Without a producer id a transactional batch belongs to no transaction.
        if header is None or not (header.is_transactional and header.has_producer):
            continue
        try:
            part.guard = part.log.producer_state.start_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, work.is_adding
            )
        except KafkaError as error:
            work.parts[index] = _Refused(part.sent, part.topic_partition, error)
            continue
        if part.guard != SENTINEL:
            asking.setdefault(part.topic_partition, []).append(index)
    return asking


def _append_verified(work: _Work, now_ms: int) -> None:
    work.context.broker.meters.verified(work.asked_ms)
    _find_logs_again(work, now_ms)
    _append_all(work, now_ms)


def _verify_again(work: _Work, now_ms: int) -> None:
    _find_logs_again(work, now_ms)
    _verify(work, now_ms)


def _find_logs_again(work: _Work, now_ms: int) -> None:
    """Look up the partitions again if a topic may have been deleted or a leader moved meanwhile."""
    broker = work.context.broker
    if work.found == (broker, broker.metadata.topics_version):
        return
    for index, part in enumerate(work.parts):
        if isinstance(part, _Refused):
            continue
        try:
            if work.context.version >= _FIRST_BY_ID_VERSION:
                # A topic that was created again under the same name is a different topic.
                broker.metadata.topic_by_id(part.sent.topic_entry.topic_id or m.NULL_UUID)
            part.log, part.leader_epoch = broker.led_log(part.topic_partition, now_ms)
        except KafkaError as error:
            work.parts[index] = _Refused(part.sent, part.topic_partition, error)


def _error_of_answer(code: ErrorCode, *, is_adding: bool) -> KafkaError:
    """Return the producer's error for the coordinator's."""
    if code in _RETRY_SAFELY or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not is_adding):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    if code == ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    return KafkaError(code)


def _append_all(work: _Work, now_ms: int) -> None:
    _answer(
        work.context,
        [part if isinstance(part, _Refused) else _append(work.context, part, now_ms) for part in work.parts],
    )


def _append(context: ApiCall[m.ProduceRequest], part: _Ready, now_ms: int) -> _Answer:
    broker = context.broker
    try:
        if context.body.acks == -1:
            broker.require_in_sync(part.topic_partition, part.log)
        result = part.log.append_as_leader(
            part.records,
            now_ms=now_ms,
            leader_epoch=part.leader_epoch,
            transaction_guard=part.guard,
            header=part.sent.header,
        )
    except KafkaError as error:
        says_start = error.code not in _SAY_NOTHING_OF_THE_LOG
        return _Refused(
            part.sent,
            part.topic_partition,
            error,
            part.log.log_start_offset if says_start else -1,
            bool(error.record_errors),
        )
    # A duplicate too: the original may not have been acknowledged, and this response acknowledges it.
    broker.logs.appended(part.topic_partition)
    return _Appended(part.sent, result)


def _answer(context: ApiCall[m.ProduceRequest], answers: Sequence[_Answer]) -> None:
    broker = context.broker
    if broker.quotas.stored:
        throttle_ms = broker.quotas.produced(
            context.principal.name, context.client_id, context.request.size_bytes, broker.now_ms()
        )
        context.throttle_ms = max(context.throttle_ms, throttle_ms)
    if context.body.acks != 0:
        context.answer(_response(context, answers))
        return
    failed = next((each for each in answers if isinstance(each, _Refused)), None)
    if failed is None:
        context.answer(None)
    else:
        context.hang_up(f"a produce request with acks=0 failed: {failed.error}")


def _response(context: RequestContext, answers: Sequence[_Answer]) -> m.ProduceResponse:
    topics: dict[int, _TopicResponse] = {}
    is_misled = False
    for each in answers:
        topic_entry = each.sent.topic_entry
        topic = topics.get(id(topic_entry))
        if topic is None:
            topic = topics[id(topic_entry)] = blank(_TopicResponse, None)
            topic.name, topic.topic_id, topic.partition_responses = topic_entry.name, topic_entry.topic_id, []
        if isinstance(each, _Appended):
            topic.partition_responses.append(_appended_response(each))
        else:
            topic.partition_responses.append(_refused_response(context, each))
            is_misled = is_misled or _is_misled(context.version, each)
    if is_misled:
        addresses = context.addresses.items()
        form = m.ProduceResponse.NodeEndpoint
        endpoints = [form(node_id=broker_id, host=host, port=port) for broker_id, (host, port) in addresses]
        response = m.ProduceResponse(node_endpoints=endpoints)
    else:
        # The constructors take 1 to 2 µs each.
        response = blank_response(m.ProduceResponse)
    response.responses, response.throttle_time_ms = list(topics.values()), 0
    return response


def _appended_response(appended: _Appended) -> _PartitionResponse:
    result = appended.result
    response = blank(_PartitionResponse, None)
    response.index, response.error_code = appended.sent.entry.index, 0
    response.base_offset, response.log_append_time_ms = result.base_offset, result.log_append_time_ms
    response.log_start_offset, response.record_errors, response.error_message = result.log_start_offset, [], None
    return response


def _refused_response(context: RequestContext, refused: _Refused) -> _PartitionResponse:
    metadata, topic_partition, leader = context.broker.metadata, refused.topic_partition, None
    if _is_misled(context.version, refused) and topic_partition is not None and metadata.has_partition(topic_partition):
        leadership = metadata.leadership(topic_partition)
        leader = _PartitionResponse.LeaderIdAndEpoch(leader_id=leadership.leader, leader_epoch=leadership.leader_epoch)
    return _PartitionResponse(
        index=refused.sent.entry.index,
        error_code=refused.error.code,
        base_offset=-1,
        error_message=refused.error.message if refused.is_explained else None,
        log_start_offset=refused.log_start_offset,
        record_errors=[
            _PartitionResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in getattr(refused.error, "record_errors", ())
        ],
        current_leader=leader,
    )


def _is_misled(version: int, refused: _Refused) -> bool:
    """Return whether the response may contain the current leader (KIP-951)."""
    return version >= _FIRST_LEADER_HINT_VERSION and refused.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


APIS = (
    # Versions 0 to 2 are advertised and refused, as in Kafka since KAFKA-18659: some versions of librdkafka take a
    # higher minimum for a broker that cannot be produced to.
    api(
        m.ProduceRequest,
        (3, 13),
        produce,
        "WRITE TRANSACTIONAL_ID",
        "WRITE TOPIC",
        advertised_min=0,
        echoes=echo("topic_data", "responses", echo("partition_data", "partition_responses")),
    ),
)
