"""The APIs of the transaction coordinator, and WriteTxnMarkers: its markers, or an administrator's abort (KIP-664).

Responses use the error codes that the client's version knows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, is_allowed_on_any, refusal, require
from broker_core.broker.broker import Broker
from broker_core.broker.marker_writer import TRANSACTIONS_V2, append_marker
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.transactions.messages import InitProducerId
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, ProducerIdentity, TopicPartition, TransactionEnd
from broker_core.wire import messages as m
from broker_core.wire.compact_fields import blank_response
from broker_core.wire.served import INDEXES, echo

_Transaction: TypeAlias = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_AddedTopic: TypeAlias = (
    m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    | m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
)
_State: TypeAlias = m.DescribeTransactionsResponse.TransactionState
TopicResult = TypeVar(
    "TopicResult",
    m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult,
    m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult,
)
# The version of each API whose clients know PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH.
_KNOWS_FENCED = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
_LAST_V1_END_TXN = 4
_FIRST_BATCHED_ADD = 4


def _worded(context: RequestContext, code: ErrorCode) -> ErrorCode:
    """Return the error code for a fenced producer that the client's version knows (rules C.5)."""
    if code == ErrorCode.PRODUCER_FENCED and context.version < _KNOWS_FENCED[context.request.api.name]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def init_producer_id(context: ApiCall[m.InitProducerIdRequest]) -> m.InitProducerIdResponse:
    """Assign a producer id and epoch (KIP-98, KIP-360)."""
    body = context.body
    if body.transactional_id is not None:
        require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    # A client that may write to any topic may use an idempotent producer (KIP-679).
    elif not is_allowed_on_any(context, Operation.WRITE, ResourceType.TOPIC):
        require(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    result = context.broker.transactions.init_producer_id(
        InitProducerId(body.transactional_id, body.transaction_timeout_ms, body.producer_id, body.producer_epoch),
        context.now_ms,
    )
    return m.InitProducerIdResponse(
        error_code=_worded(context, result.error), producer_id=result.producer_id, producer_epoch=result.producer_epoch
    )


def add_partitions(context: ApiCall[m.AddPartitionsToTxnRequest]) -> m.AddPartitionsToTxnResponse:
    body, response = context.body, m.AddPartitionsToTxnResponse
    if context.version >= _FIRST_BATCHED_ADD:
        require(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        result, results = response.AddPartitionsToTxnResult, []
        for each in body.transactions:
            answers = _batched_answers(context, each)
            found = _topic_results(each.topics, answers, result.AddPartitionsToTxnTopicResult)
            results.append(result(transactional_id=each.transactional_id, topic_results=found))
        return response(results_by_transaction=results)
    partitions = _partitions(body.v3_and_below_topics)
    refused = refusal(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.v3_and_below_transactional_id)
    answers = dict.fromkeys(partitions, refused) if refused else _refused(context, partitions)
    if not answers:
        code = context.broker.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
            partitions,
            client_transaction_version=0,
            now_ms=context.now_ms,
        )
        answers = dict.fromkeys(partitions, _worded(context, code))
    results_by_topic = _topic_results(body.v3_and_below_topics, answers, response.AddPartitionsToTxnTopicResult)
    return response(results_by_topic_v3_and_below=results_by_topic)


def _batched_answers(context: RequestContext, transaction: _Transaction) -> Mapping[TopicPartition, ErrorCode]:
    partitions = _partitions(transaction.topics)
    coordinator = context.broker.transactions
    refused = _refused(context, partitions, is_from_broker=True)
    if refused:
        return refused
    transactional_id = transaction.transactional_id
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_partitions(transactional_id, producer, partitions)
    code = coordinator.add_partitions(
        transactional_id, producer, partitions, client_transaction_version=TRANSACTIONS_V2, now_ms=context.now_ms
    )
    return dict.fromkeys(partitions, code)


def _partitions(topics: Iterable[_AddedTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(
    context: RequestContext, partitions: Collection[TopicPartition], *, is_from_broker: bool = False
) -> dict[TopicPartition, ErrorCode]:
    """Return the errors found before the coordinator is called; empty if there is none (rules A.6)."""
    bad = {}
    for topic_partition in partitions:
        # Only a broker may add a partition of an internal topic; it has authorized its client.
        if not is_from_broker and (
            topic_partition.topic in INTERNAL_TOPICS
            or refusal(context, Operation.WRITE, ResourceType.TOPIC, topic_partition.topic)
        ):
            bad[topic_partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not context.broker.metadata.has_partition(topic_partition):
            bad[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not bad:
        return {}
    return {tp: bad.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions}


def _topic_results(
    topics: Iterable[_AddedTopic], answers: Mapping[TopicPartition, ErrorCode], form: type[TopicResult]
) -> list[TopicResult]:
    return [
        form(
            name=topic.name,
            results_by_partition=[
                form.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=answers[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_offsets(context: ApiCall[m.AddOffsetsToTxnRequest]) -> m.AddOffsetsToTxnResponse:
    """Add a group's offsets partition to the transaction (rules A.7)."""
    body = context.body
    require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    require(context, Operation.READ, ResourceType.GROUP, body.group_id)
    partition = context.broker.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, body.group_id)
    code = context.broker.transactions.add_partitions(
        body.transactional_id,
        ProducerIdentity(body.producer_id, body.producer_epoch),
        [partition],
        client_transaction_version=0,
        now_ms=context.now_ms,
    )
    return m.AddOffsetsToTxnResponse(error_code=_worded(context, code))


def end_transaction(context: ApiCall[m.EndTxnRequest]) -> m.EndTxnResponse:
    """Commit or abort; from version 5 on the response has the identity for the next transaction (KIP-890)."""
    body = context.body
    require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    result = context.broker.transactions.end_transaction(
        body.transactional_id,
        ProducerIdentity(body.producer_id, body.producer_epoch),
        commit=body.committed,
        client_transaction_version=TRANSACTIONS_V2 if context.version > _LAST_V1_END_TXN else 0,
        now_ms=context.now_ms,
    )
    # Each transaction ends with one, and the constructor takes 1.7 µs.
    response = blank_response(m.EndTxnResponse)
    response.throttle_time_ms, response.error_code = 0, _worded(context, result.error)
    response.producer_id, response.producer_epoch = result.producer_id, result.producer_epoch
    return response


def describe_transactions(context: ApiCall[m.DescribeTransactionsRequest]) -> m.DescribeTransactionsResponse:
    """Describe the state of transactional ids (KIP-664, rules F.2)."""
    states = [_described(context, each) for each in context.body.transactional_ids]
    return m.DescribeTransactionsResponse(transaction_states=states)


def _described(context: RequestContext, transactional_id: str) -> _State:
    found = refusal(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id) or (
        context.broker.transactions.describe(transactional_id)
    )
    if isinstance(found, ErrorCode):
        return _State(error_code=found, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic_partition in sorted(found.partitions):
        if is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic_partition.topic):
            topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return _State(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[_State.TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def list_transactions(context: ApiCall[m.ListTransactionsRequest]) -> m.ListTransactionsResponse:
    """List the transactions this broker coordinates (KIP-664, KIP-994, KIP-1152; rules F.3)."""
    body, response = context.body, m.ListTransactionsResponse
    listed = context.broker.transactions.list_transactions(
        states=body.state_filters,
        producer_ids=body.producer_id_filters,
        duration_ms=body.duration_filter,
        pattern=body.transactional_id_pattern,
        now_ms=context.now_ms,
    )
    return response(
        error_code=listed.error,
        unknown_state_filters=list(listed.unknown_states),
        transaction_states=[
            response.TransactionState(
                transactional_id=name, producer_id=image.producer_id, transaction_state=image.state.label
            )
            for name, image in listed.transactions.items()
            if is_allowed(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ],
    )


_Result: TypeAlias = m.WriteTxnMarkersResponse.WritableTxnMarkerResult


def write_markers(context: ApiCall[m.WriteTxnMarkersRequest]) -> m.WriteTxnMarkersResponse:
    """Write each marker to each of its partitions that this broker leads (rules A.13).

    The response identifies markers by producer id alone, so all markers of one producer are answered as one.
    """
    answers: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in context.body.markers:
        for topic_partition, code in _written(context, marker):
            topics = answers.setdefault(marker.producer_id, {})
            topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = code
    return m.WriteTxnMarkersResponse(markers=[_result(producer_id, topics) for producer_id, topics in answers.items()])


def _written(
    context: RequestContext, marker: m.WriteTxnMarkersRequest.WritableTxnMarker
) -> Iterator[tuple[TopicPartition, ErrorCode]]:
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    end = TransactionEnd(producer, marker.transaction_result, marker.coordinator_epoch, marker.transaction_version)
    # Coordinators have the first right, administrators the second (KIP-664).
    refused = not is_allowed(context, Operation.ALTER, ResourceType.CLUSTER) and refusal(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    for topic in marker.topics:
        for index in topic.partition_indexes:
            topic_partition = TopicPartition(topic.name, index)
            yield (
                topic_partition,
                refused
                or _not_here(context.broker, topic_partition)
                or append_marker(context.broker, topic_partition, end, context.now_ms),
            )


def _not_here(broker: Broker, topic_partition: TopicPartition) -> ErrorCode:
    """Return UNKNOWN_TOPIC_OR_PARTITION for a partition that this broker is no replica of (rule A.13 receiver/4)."""
    try:
        is_here = broker.is_replica_of(topic_partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if is_here else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _result(producer_id: int, topics: dict[str, dict[int, ErrorCode]]) -> _Result:
    form = _Result.WritableTxnMarkerTopicResult
    partition = form.WritableTxnMarkerPartitionResult
    results = [
        form(name=name, partitions=[partition(partition_index=i, error_code=code) for i, code in codes.items()])
        for name, codes in topics.items()
    ]
    return _Result(producer_id=producer_id, topics=results)


APIS = (
    # Version 6 is KIP-939, unfinished in every release: a normal broker stops at 5.
    api(
        m.InitProducerIdRequest,
        (0, 5),
        init_producer_id,
        "WRITE TRANSACTIONAL_ID",
        "WRITE TOPIC or IDEMPOTENT_WRITE CLUSTER",
    ),
    api(
        m.AddPartitionsToTxnRequest,
        (0, 5),
        add_partitions,
        "WRITE TRANSACTIONAL_ID",
        "WRITE TOPIC",
        # From version 4, which is for brokers, this replaces both.
        "CLUSTER_ACTION CLUSTER",
        echoes=echo(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            echo("partitions", "results_by_partition", partition_index=""),
        ),
    ),
    api(m.AddOffsetsToTxnRequest, (0, 4), add_offsets, "WRITE TRANSACTIONAL_ID", "READ GROUP"),
    api(m.EndTxnRequest, (0, 5), end_transaction, "WRITE TRANSACTIONAL_ID"),
    api(
        m.DescribeTransactionsRequest,
        (0, 0),
        describe_transactions,
        "DESCRIBE TRANSACTIONAL_ID",
        "DESCRIBE TOPIC or nothing",
        echoes=echo("transactional_ids", "transaction_states", transactional_id=""),
    ),
    api(m.ListTransactionsRequest, (0, 2), list_transactions, "DESCRIBE TRANSACTIONAL_ID or nothing"),
    api(
        m.WriteTxnMarkersRequest,
        (1, 2),
        write_markers,
        "ALTER CLUSTER or CLUSTER_ACTION CLUSTER",
        echoes=echo("markers", "markers", echo("topics", "topics", INDEXES)),
    ),
)
