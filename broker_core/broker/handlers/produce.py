"""Append what producers send: the checks of facts C.1 in their order.

A transactional batch needs the coordinator's word that its partition belongs to the transaction. Before
Produce 12 the client has told the coordinator and the leader verifies it (KIP-890 part 1); from 12 on the
leader adds the partition itself (part 2). The log hands out a guard first and checks it at the append, so a
marker written in between makes the append fail instead of opening a transaction nobody will end.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker_core.broker.call import Call
from broker_core.broker.rights import refusal, require
from broker_core.broker.verification import ADD, OLD_ERROR, VERIFY, coordinator_answers
from broker_core.errors import ErrorCode, InvalidBatch, KafkaError
from broker_core.log.partition_log import AppendResult, PartitionLog
from broker_core.log.producer_state import SENTINEL, Guard
from broker_core.records.compression import Compression
from broker_core.records.header import HEADER_SIZE, MAGIC, MAGIC_POSITION, BatchHeader, framed_size
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import ProducerIdentity, TopicPartition
from broker_core.wire import messages as m

_LAST_OLD_ERROR_VERSION = 10
_FIRST_ADDING_VERSION = 12
_FIRST_BY_ID_VERSION = 13
_FIRST_ZSTD_VERSION = 7
_FIRST_LEADER_HINT_VERSION = 10
# The client id under which an operator may mend an internal topic; a coordinator sees it when it next loads.
_REPAIRER = "__admin_client"
# A verification that failed for a passing reason is answered with the one retriable code every client knows.
_RETRY_SAFELY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# After these verdicts on a batch Kafka does not say where the log starts, after all others of the log it does.
_SAY_NOTHING_OF_THE_LOG = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


@dataclass(slots=True)
class _Part:
    """Hold one partition's share of the request while it goes through the checks."""

    topic_entry: Any
    entry: Any
    records: bytes = b""
    size_bytes: int | None = None
    topic_partition: TopicPartition | None = None
    header: BatchHeader | None = None
    log: PartitionLog | None = None
    leader_epoch: int = -1
    guard: Guard | None = None
    error: KafkaError | None = None
    result: AppendResult | None = None
    log_start_offset: int = -1

    def find_batch(self) -> None:
        """Find the end of the first batch; raises `InvalidBatch` when there cannot be one."""
        self.records = self.entry.records or b""
        self.size_bytes = framed_size(self.records)
        if self.size_bytes is not None and self.size_bytes >= HEADER_SIZE and self.records[MAGIC_POSITION] == MAGIC:
            self.header = BatchHeader.parse(self.records)

    @property
    def is_transactional(self) -> bool:
        return self.header is not None and self.header.is_transactional

    @property
    def opens_transaction(self) -> bool:
        """Say whether the batch is a transactional one of somebody; without a producer id it belongs to nothing."""
        return self.header is not None and self.header.is_transactional and self.header.has_producer


@dataclass(slots=True)
class _Produce:
    """Hold a whole request, so that it can wait for the coordinator in between."""

    call: Call
    parts: list[_Part] = field(default_factory=list)
    give_up_ms: int = 0
    asked_ms: float = 0.0


def produce(call: Call) -> None:
    """Append the batches and answer with their offsets, or with why not, partition by partition."""
    work = _Produce(call, give_up_ms=call.now_ms + call.broker.config.add_partitions_retry_backoff_max_ms)
    for topic_entry in call.body.topic_data:
        for entry in topic_entry.partition_data:
            work.parts.append(_Part(topic_entry, entry))
    try:
        for part in work.parts:
            part.find_batch()
    except InvalidBatch as error:
        # Kafka looks into all of them before it looks at any: one that makes no sense spoils the request.
        _fail(work.parts, ErrorCode.CORRUPT_MESSAGE, str(error))
        _append_all(work, call.now_ms)
        return
    for part in work.parts:
        _check_part(call, part)
    _check_transaction(work)
    _verify(work, call.now_ms)


def _check_part(call: Call, part: _Part) -> None:
    """Find the partition, its log and the one batch that is meant for it (rows 2 to 6, 9 to 11)."""
    try:
        name = part.topic_entry.name
        if call.version >= _FIRST_BY_ID_VERSION:
            name = call.broker.catalog.topic_by_id(part.topic_entry.topic_id).name
        part.topic_partition = TopicPartition(name, part.entry.index)
        require(call, Operation.WRITE, ResourceType.TOPIC, name)
        call.broker.catalog.leadership(part.topic_partition)
        _check_batch(part, call.version)
        if call.body.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={call.body.acks} is none of -1, 0, 1")
        if call.broker.catalog.topic(name).is_internal and call.client_id != _REPAIRER:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal; only coordinators write to it")
        part.log, part.leader_epoch = call.broker.led_log(part.topic_partition, call.now_ms)
    except KafkaError as error:
        part.error = error


def _check_batch(part: _Part, version: int) -> None:
    """Refuse all but one whole batch; half of another behind it is cut off, as Kafka does."""
    records, size_bytes = part.records, part.size_bytes
    if size_bytes is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"there is no whole batch in the {len(records)} bytes")
    if records[MAGIC_POSITION] != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"magic {records[MAGIC_POSITION]}: only {MAGIC} is taken")
    if (
        part.header is not None
        and version < _FIRST_ZSTD_VERSION
        and part.header.has_codec
        and part.header.compression is Compression.ZSTD
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or newer")
    if size_bytes == len(records):
        return
    try:
        is_followed = framed_size(records, size_bytes) is not None
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if is_followed:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition's records must be exactly one batch")
    part.records = records[:size_bytes]


def _check_transaction(work: _Produce) -> None:
    """Refuse all partitions when the transactional data does not belong together (rows 1 and 7)."""
    transactional = [part for part in work.parts if part.is_transactional]
    transactional_id = work.call.body.transactional_id
    if transactional and transactional_id is None:
        _fail(work.parts, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without an id")
    elif transactional and refusal(work.call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        _fail(
            work.parts,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{work.call.principal} has no right to WRITE as transactional id {transactional_id!r}",
        )
    producers = {
        (part.header.producer_id, part.header.producer_epoch)
        for part in transactional
        if part.header is not None and part.opens_transaction
    }
    if len(producers) > 1:
        _fail(work.parts, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer")


def _fail(parts: list[_Part], code: ErrorCode, message: str) -> None:
    for part in parts:
        part.error = KafkaError(code, message)


def _verify(work: _Produce, now_ms: int) -> None:
    """Ask the coordinator about the partitions not known to be in the transaction (facts C.3), then append."""
    call = work.call
    unverified = [part for part in work.parts if part.error is None and part.opens_transaction]
    adding = call.version >= _FIRST_ADDING_VERSION
    if call.body.transactional_id is None or not (
        adding or call.broker.config.transaction_partition_verification_enable
    ):
        unverified = []
    # A list, since a request may name a partition twice: the answer is for each of its batches.
    asking: dict[TopicPartition, list[_Part]] = {}
    for part in unverified:
        assert part.log is not None and part.header is not None and part.topic_partition is not None
        try:
            part.guard = part.log.start_verification(
                part.header.producer_id, part.header.producer_epoch, part.header.base_sequence, adding
            )
        except KafkaError as error:
            part.error = error
            continue
        if part.guard != SENTINEL:
            asking.setdefault(part.topic_partition, []).append(part)
    if asking:
        header = next(iter(asking.values()))[0].header
        assert header is not None
        mode = ADD if adding else OLD_ERROR if call.version <= _LAST_OLD_ERROR_VERSION else VERIFY
        work.asked_ms = call.broker.meters.stopwatch()
        answers = coordinator_answers(
            call.broker.cluster,
            call.body.transactional_id,
            ProducerIdentity(header.producer_id, header.producer_epoch),
            asking,
            mode,
            now_ms,
        )
        if adding and ErrorCode.CONCURRENT_TRANSACTIONS in answers.values() and now_ms < work.give_up_ms:
            # The transaction before is still being completed: a moment's patience here saves the client a round trip.
            call.broker.meters.verified(work.asked_ms)
            again_ms = now_ms + call.broker.config.add_partitions_retry_backoff_ms
            call.broker.purgatory.at(min(again_ms, work.give_up_ms), call.guarded(partial(_verify_again, work), None))
            return
        for topic_partition, code in answers.items():
            for part in asking[topic_partition]:
                _take_answer(part, code, adding=adding)
        if adding and ErrorCode.NONE in answers.values():
            # What the coordinator has just recorded must be durable first: data that outlived it in a crash would
            # belong to a transaction that nobody ends.
            call.broker.outbox.put(call.guarded(partial(_append_anew, work), None))
            return
        call.broker.meters.verified(work.asked_ms)
    _append_all(work, now_ms)


def _append_anew(work: _Produce, now_ms: int) -> None:
    work.call.broker.meters.verified(work.asked_ms)
    _find_logs_anew(work, now_ms)
    _append_all(work, now_ms)


def _verify_again(work: _Produce, now_ms: int) -> None:
    _find_logs_anew(work, now_ms)
    _verify(work, now_ms)


def _find_logs_anew(work: _Produce, now_ms: int) -> None:
    """Look again where the partitions are: in between a topic may have been deleted or a leader moved."""
    for part in work.parts:
        if part.error is None:
            assert part.topic_partition is not None
            try:
                if work.call.version >= _FIRST_BY_ID_VERSION:
                    # A topic made anew under the same name is another one.
                    work.call.broker.catalog.topic_by_id(part.topic_entry.topic_id)
                part.log, part.leader_epoch = work.call.broker.led_log(part.topic_partition, now_ms)
            except KafkaError as error:
                part.error = error


def _take_answer(part: _Part, code: ErrorCode, *, adding: bool) -> None:
    if code in _RETRY_SAFELY or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not adding):
        part.error = KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    elif code != ErrorCode.NONE:
        part.error = KafkaError(code, "the transaction coordinator refused the partition")


def _append_all(work: _Produce, now_ms: int) -> None:
    call = work.call
    for part in work.parts:
        if part.error is None:
            _append(call, part, now_ms)
    if call.body.acks == 0:
        failed = [part for part in work.parts if part.error is not None]
        if failed:
            call.hang_up(f"a produce request with acks=0 failed: {failed[0].error}")
        else:
            call.answer_nothing()
        return
    call.answer(_response(work))


def _append(call: Call, part: _Part, now_ms: int) -> None:
    assert part.log is not None and part.topic_partition is not None
    try:
        part.result = part.log.append_as_leader(
            part.records,
            now_ms=now_ms,
            leader_epoch=part.leader_epoch,
            transaction_guard=part.guard,
            header=part.header,
        )
    except KafkaError as error:
        part.error = error
        if error.code not in _SAY_NOTHING_OF_THE_LOG:
            part.log_start_offset = part.log.log_start_offset
        return
    # A duplicate too: what it repeats may have been written without a promise, and is now acknowledged.
    call.broker.logs.appended(part.topic_partition)


def _response(work: _Produce) -> Any:
    response = m.ProduceResponse
    topics: dict[int, Any] = {}
    for part in work.parts:
        topic = topics.get(id(part.topic_entry))
        if topic is None:
            topic = topics[id(part.topic_entry)] = response.TopicProduceResponse(
                name=part.topic_entry.name, topic_id=part.topic_entry.topic_id, partition_responses=[]
            )
        topic.partition_responses.append(_partition_response(work.call, part))
    return response(responses=list(topics.values()), **_node_endpoints(work))


def _partition_response(call: Call, part: _Part) -> Any:
    form = m.ProduceResponse.TopicProduceResponse.PartitionProduceResponse
    if part.error is None:
        assert part.result is not None
        return form(
            index=part.entry.index,
            error_code=0,
            base_offset=part.result.base_offset,
            log_append_time_ms=part.result.log_append_time_ms,
            log_start_offset=part.result.log_start_offset,
            record_errors=[],
        )
    hint = {}
    if (
        _is_misled(call, part)
        and part.topic_partition is not None
        and call.broker.catalog.has_partition(part.topic_partition)
    ):
        leadership = call.broker.catalog.leadership(part.topic_partition)
        hint["current_leader"] = form.LeaderIdAndEpoch(
            leader_id=leadership.leader, leader_epoch=leadership.leader_epoch
        )
    return form(
        index=part.entry.index,
        error_code=part.error.code,
        base_offset=-1,
        error_message=part.error.message,
        log_start_offset=part.log_start_offset,
        record_errors=[
            form.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in getattr(part.error, "record_errors", ())
        ],
        **hint,
    )


def _is_misled(call: Call, part: _Part) -> bool:
    """Say whether the client may be told the right leader at once (KIP-951)."""
    return (
        call.version >= _FIRST_LEADER_HINT_VERSION
        and part.error is not None
        and part.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def _node_endpoints(work: _Produce) -> dict[str, Any]:
    if not any(_is_misled(work.call, part) for part in work.parts):
        return {}
    endpoint = m.ProduceResponse.NodeEndpoint
    return {
        "node_endpoints": [
            endpoint(node_id=broker_id, host=host, port=port) for broker_id, (host, port) in work.call.addresses.items()
        ]
    }
