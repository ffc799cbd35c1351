"""The APIs that commit, fetch and delete groups' offsets; requests have topic names or ids, the layers below names."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, refusal, require
from broker_core.broker.marker_writer import ADD, OLD_ERROR, VERIFY, coordinator_answers
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.classic.requests import NO_GENERATION
from broker_core.coordinator.groups.offsets.store import FetchedOffset, OffsetCommit, OffsetsResult, OffsetToCommit
from broker_core.coordinator.groups.shard import translate_append_error
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.producer_state import SENTINEL
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CONSUMER_OFFSETS_TOPIC, ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import Fields, response_to_each
from broker_core.wire.served import INDEXES, TOPICS, echo

_FIRST_BY_ID = 10
_FIRST_TRANSACTIONAL_BY_ID = 6
_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_ERROR = 2
_FIRST_ADDING = 5
_LAST_OLD_ERROR = 3
_FIRST_KNOWING_LOADS = 2

_CommitCall: TypeAlias = ApiCall[m.OffsetCommitRequest | m.TxnOffsetCommitRequest]
_DeletedTopic: TypeAlias = m.OffsetDeleteRequest.OffsetDeleteRequestTopic
_FetchedGroup: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponseGroup
Form = TypeVar("Form")
# The names and partition indexes of the topics that a client asks for, None for all.
_Wanted = list[tuple[str, list[int]]] | None
_Answers = Mapping[TopicPartition, ErrorCode]


def commit(context: ApiCall[m.OffsetCommitRequest]) -> m.ApiMessage:
    body = context.body

    def to_coordinator(offsets: Mapping[TopicPartition, OffsetToCommit]) -> _Answers:
        return context.broker.groups.commit_offsets(
            OffsetCommit(
                body.group_id,
                offsets,
                body.generation_id_or_member_epoch,
                body.member_id,
                body.group_instance_id,
                body.retention_time_ms,
                knows_member_epochs=context.version >= _FIRST_WITH_MEMBER_EPOCH,
            ),
            context.now_ms,
        )

    return _commit(context, _FIRST_BY_ID, to_coordinator)


def commit_in_transaction(context: ApiCall[m.TxnOffsetCommitRequest]) -> m.ApiMessage:
    """Commit offsets as a part of a transaction (KIP-98, KIP-447, KIP-890; rules E.1)."""
    body = context.body
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)

    def to_coordinator(offsets: Mapping[TopicPartition, OffsetToCommit]) -> _Answers:
        request = OffsetCommit(
            body.group_id,
            offsets,
            body.generation_id_or_member_epoch,
            body.member_id,
            body.group_instance_id,
            knows_member_epochs=context.version >= _FIRST_TRANSACTIONAL_BY_ID,
            producer=producer,
        )
        code = context.broker.groups.check_transactional_commit(request) or _verified(context, producer)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < _FIRST_KNOWING_LOADS:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code != ErrorCode.NONE:
            return dict.fromkeys(offsets, code)
        return context.broker.groups.commit_offsets(request, context.now_ms)

    return _commit(context, _FIRST_TRANSACTIONAL_BY_ID, to_coordinator)


def _verified(context: ApiCall[m.TxnOffsetCommitRequest], producer: ProducerIdentity) -> ErrorCode:
    broker = context.broker
    partition = broker.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, context.body.group_id)
    mode = ADD if context.version >= _FIRST_ADDING else OLD_ERROR if context.version <= _LAST_OLD_ERROR else VERIFY
    if mode is not ADD and not broker.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    try:
        log, _ = broker.led_log(partition, context.now_ms)
        guard = log.producer_state.start_verification(producer.producer_id, producer.producer_epoch, -1, mode is ADD)
    except KafkaError as error:
        return translate_append_error(error.code)
    if guard == SENTINEL:
        return ErrorCode.NONE
    began_ms = broker.meters.stopwatch()
    answers, is_asked = coordinator_answers(
        broker, context.body.transactional_id, producer, [partition], mode, context.now_ms
    )
    code = answers[partition]
    if mode is ADD and code == ErrorCode.NONE:
        # As for Produce: offsets that survive a crash without the coordinator's record would stay pending indefinitely.
        # With one sync, as a step does it: `sync` has one for each file that the step's other requests wrote to.
        broker.logs.finish_sync()
        broker.logs.start_sync(lambda: None)
        broker.logs.finish_sync()
    if is_asked:
        broker.meters.verified(began_ms)
    return translate_append_error(code)


def _commit(
    context: _CommitCall,
    first_by_id: int,
    to_coordinator: Callable[[Mapping[TopicPartition, OffsetToCommit]], _Answers],
) -> m.ApiMessage:
    """Refuse partitions that do not exist or may not be read, commit the rest, answer in the request's order."""
    by_id = context.version >= first_by_id
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = _refusal_of_commit(context)
    names = context.broker.metadata.names
    named = [
        (names.get(topic.topic_id or m.NULL_UUID) if by_id else topic.name, topic) for topic in context.body.topics
    ]
    unreadable = set() if refused else _unreadable_topics(context, (name for name, _ in named))
    offsets = {
        TopicPartition(name, entry.partition_index): OffsetToCommit(
            entry.committed_offset, entry.committed_leader_epoch, entry.committed_metadata
        )
        for name, topic in named
        if not refused and name is not None and name not in unreadable
        for entry in topic.partitions
        if context.broker.metadata.has_partition(TopicPartition(name, entry.partition_index))
    }
    answers = to_coordinator(offsets) if offsets else {}
    # The classes of the two responses have the same fields.
    form = context.request.api.response
    topic_form = getattr(form, f"{form.__name__}Topic")
    partition_form = getattr(topic_form, f"{form.__name__}Partition")
    topics = []
    for name, topic in named:
        missing = refused or (unknown if name is None else _missing(name, unreadable))
        partitions = [
            partition_form(
                partition_index=entry.partition_index,
                error_code=answers.get(TopicPartition(name or "", entry.partition_index), missing),
            )
            for entry in topic.partitions
        ]
        place = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        # As in Kafka, a topic without partitions is left out.
        if partitions:
            topics.append(topic_form(partitions=partitions, **place))
    committed: m.ApiMessage = form(topics=topics)
    return committed


def _refusal_of_commit(context: _CommitCall) -> ErrorCode:
    """Return the error that refuses the whole commit: no right to the transactional id or to the group."""
    refused = (
        ErrorCode.NONE
        if isinstance(context.body, m.OffsetCommitRequest)
        else refusal(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, context.body.transactional_id)
    )
    return refused or refusal(context, Operation.READ, ResourceType.GROUP, context.body.group_id)


def _unreadable_topics(context: RequestContext, names: Iterable[str | None]) -> set[str]:
    return {name for name in names if name is not None and refusal(context, Operation.READ, ResourceType.TOPIC, name)}


def _missing(name: str, unreadable: Collection[str]) -> ErrorCode:
    """Return the error of a partition that the coordinator was not asked about."""
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in unreadable else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def fetch(context: ApiCall[m.OffsetFetchRequest]) -> m.OffsetFetchResponse:
    """Fetch committed offsets, of one group or, from version 8 on, of several (rules E.3)."""
    body, response = context.body, m.OffsetFetchResponse
    if context.version >= 8:
        groups = [_fetch_group(context, group, require_stable=body.require_stable) for group in body.groups]
        return response(groups=groups)
    wanted = None if body.topics is None else [(topic.name, topic.partition_indexes) for topic in body.topics]
    result = _allowed_offsets(context, body.group_id, wanted, require_stable=body.require_stable)
    says_error_once = result.error and context.version >= _FIRST_WITH_ERROR
    topics = [] if says_error_once else _offsets_by_topic(result.offsets, wanted, result.error)
    form = response.OffsetFetchResponseTopic
    return response(
        error_code=result.error,
        topics=[
            form(name=name, partitions=_offset_forms(form.OffsetFetchResponsePartition, partitions))
            for name, partitions in topics
        ],
    )


def _fetch_group(
    context: RequestContext, group: m.OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
) -> _FetchedGroup:
    by_id = context.version >= _FIRST_BY_ID
    names = context.broker.metadata.names
    topic_form = _FetchedGroup.OffsetFetchResponseTopics
    partition_form = topic_form.OffsetFetchResponsePartitions
    topics: list[_FetchedGroup.OffsetFetchResponseTopics] = []
    wanted: _Wanted = None
    if group.topics is not None:
        wanted = []
        for topic in group.topics:
            name = names.get(topic.topic_id or m.NULL_UUID) if by_id else topic.name
            if name is None:
                unknown = [(index, FetchedOffset(ErrorCode.UNKNOWN_TOPIC_ID)) for index in topic.partition_indexes]
                topics.append(topic_form(topic_id=topic.topic_id, partitions=_offset_forms(partition_form, unknown)))
                continue
            wanted.append((name, topic.partition_indexes))
    result = _allowed_offsets(
        context,
        group.group_id,
        wanted,
        require_stable=require_stable,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
    )
    for name, partitions in _offsets_by_topic(result.offsets, wanted, result.error):
        if by_id and name not in context.broker.metadata.topics:
            continue
        topic_id = context.broker.metadata.topics[name].topic_id if by_id else None
        if by_id and wanted is not None:
            # An offset of a deleted topic of that name is none of this one's.
            partitions = [
                (index, found if found.topic_id in (None, topic_id) else FetchedOffset()) for index, found in partitions
            ]
        topics.append(
            topic_form(
                name="" if by_id else name, topic_id=topic_id, partitions=_offset_forms(partition_form, partitions)
            )
        )
    return _FetchedGroup(group_id=group.group_id, topics=[] if result.error else topics, error_code=result.error)


def _allowed_offsets(
    context: RequestContext,
    group_id: str,
    named: _Wanted,
    *,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = NO_GENERATION,
) -> OffsetsResult[FetchedOffset]:
    """Fetch the offsets the client may see; topics it names and may not see are refused, others are left out."""
    refused = refusal(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    if refused:
        return OffsetsResult(refused)
    fetch_offsets = partial(
        context.broker.groups.fetch_offsets,
        group_id,
        require_stable=require_stable,
        member_id=member_id,
        member_epoch=member_epoch,
    )
    if named is None:
        found = fetch_offsets(None)
        hidden = _hidden_topics(context, found.offsets)
        return OffsetsResult(
            found.error, {place: offset for place, offset in found.offsets.items() if place.topic not in hidden}
        )
    wanted = [TopicPartition(name, index) for name, indexes in named for index in indexes]
    hidden = _hidden_topics(context, wanted)
    found = fetch_offsets([each for each in wanted if each.topic not in hidden])
    if found.error:
        return found
    hidden_offset = FetchedOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    hidden_offsets = {each: hidden_offset for each in wanted if each.topic in hidden}
    return OffsetsResult(found.error, {**found.offsets, **hidden_offsets})


def _hidden_topics(context: RequestContext, partitions: Iterable[TopicPartition]) -> set[str]:
    return {
        name
        for name in {each.topic for each in partitions}
        if not is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    }


def _offsets_by_topic(
    offsets: Mapping[TopicPartition, FetchedOffset], wanted: _Wanted, error: ErrorCode
) -> list[tuple[str, list[tuple[int, FetchedOffset]]]]:
    """Return the offsets of the topics in the order of the request, or of all topics that have some."""
    if wanted is None:
        found: dict[str, list[int]] = {}
        for name, index in sorted(offsets):
            found.setdefault(name, []).append(index)
        wanted = list(found.items())
    unknown = FetchedOffset(error)
    return [
        (name, [(index, offsets.get(TopicPartition(name, index), unknown)) for index in indexes])
        for name, indexes in wanted
    ]


def _offset_forms(form: Callable[..., Form], partitions: Iterable[tuple[int, FetchedOffset]]) -> list[Form]:
    return [
        form(
            partition_index=index,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            error_code=found.error,
        )
        for index, found in partitions
    ]


def delete(context: ApiCall[m.OffsetDeleteRequest]) -> m.ApiMessage:
    """Delete a group's offsets of partitions it does not subscribe to (KIP-496)."""
    body = context.body
    require(context, Operation.DELETE, ResourceType.GROUP, body.group_id)
    unreadable = _unreadable_topics(context, (topic.name for topic in body.topics))
    wanted = [
        TopicPartition(topic.name, entry.partition_index)
        for topic in body.topics
        for entry in topic.partitions
        if topic.name not in unreadable
        and context.broker.metadata.has_partition(TopicPartition(topic.name, entry.partition_index))
    ]
    result = context.broker.groups.delete_offsets(body.group_id, wanted, context.now_ms)
    if result.error:
        return m.OffsetDeleteResponse(error_code=result.error)

    def code(topic: _DeletedTopic, entry: _DeletedTopic.OffsetDeleteRequestPartition) -> Fields:
        place = TopicPartition(topic.name, entry.partition_index)
        return {"error_code": result.offsets.get(place, _missing(topic.name, unreadable))}

    # As in Kafka, a topic without partitions is left out.
    asked = m.OffsetDeleteRequest(group_id=body.group_id, topics=[each for each in body.topics if each.partitions])
    return response_to_each(context.request, code, asked)


APIS = (
    api(m.OffsetCommitRequest, (2, 10), commit, "READ GROUP", "READ TOPIC", echoes=TOPICS),
    api(
        m.OffsetFetchRequest,
        (1, 10),
        fetch,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        echoes=(echo("topics", "topics", INDEXES), echo("groups")),
        unspecific=range(2, 8),
    ),
    api(
        m.TxnOffsetCommitRequest,
        (0, 6),
        commit_in_transaction,
        "WRITE TRANSACTIONAL_ID",
        "READ GROUP",
        "READ TOPIC",
        echoes=TOPICS,
    ),
    api(m.OffsetDeleteRequest, (0, 0), delete, "DELETE GROUP", "READ TOPIC", echoes=TOPICS, unspecific=range(1)),
)
