"""The acknowledgment of records of share groups, in ShareAcknowledge and ShareFetch requests (KIP-932).

ShareAcknowledge is a request of a share session that fetches nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal
from broker_core.broker.partitions import Leadership
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.handlers.groups import is_enabled, is_member_id
from broker_core.features.share_groups.partitions.acknowledgment import RENEW, Acknowledgment
from broker_core.features.share_groups.partitions.share_partitions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SharedPartition,
)
from broker_core.features.share_groups.states.state import Outcome, SharePartitionKey, outcome_of
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import TopicPartition
from broker_core.wire import messages as m

_FIRST_WITH_RENEWAL = 2
_LAST_TYPE_BEFORE = 3
_AcknowledgingCall: TypeAlias = ApiCall[m.ShareAcknowledgeRequest | m.ShareFetchRequest]


def acknowledge(context: ApiCall[m.ShareAcknowledgeRequest]) -> m.ApiMessage:
    """Acknowledge records; the last request of a session closes it."""
    error, epoch = request_error(context), context.body.share_session_epoch
    if epoch == INITIAL_EPOCH:
        # A session begins with a fetch.
        error = error or ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if not error:
        try:
            session = share_broker(context.broker).partitions.session(session_key(context))
            if epoch != FINAL_EPOCH:
                session.advance(epoch)
        except KafkaError as failure:
            error = failure.code
    if error:
        return error_answer(context, error)
    results = acknowledge_all(context)
    form = m.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
    answers = {
        each[:2]: form.PartitionData(
            partition_index=each.partition, error_code=result.error, error_message=result.message
        )
        for each, result in results.items()
    }
    answer = complete_answer(context, form, answers)
    if epoch == FINAL_EPOCH:
        share_broker(context.broker).partitions.close_session(session_key(context))
    return answer


def request_error(context: _AcknowledgingCall) -> ErrorCode:
    body = context.body
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if body.group_id is None:
        return ErrorCode.INVALID_REQUEST
    refused = refusal(context, Operation.READ, ResourceType.GROUP, body.group_id)
    return refused or (ErrorCode.NONE if is_member_id(body.member_id) else ErrorCode.INVALID_REQUEST)


def error_answer(context: RequestContext, error: ErrorCode) -> m.ApiMessage:
    response = context.request.api.response
    answer: m.ApiMessage = response(error_code=error, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[])
    return answer


def session_key(context: _AcknowledgingCall) -> SessionKey:
    """Return the key of the request's session; `request_error` has refused requests without one."""
    return SessionKey(context.body.group_id or "", context.body.member_id or "")


def acknowledge_all(context: _AcknowledgingCall) -> dict[SharedPartition, Outcome]:
    """Acknowledge what the request acknowledges; a partition is acknowledged as a whole or not at all."""
    names = context.broker.metadata.names
    failed: dict[SharedPartition, Outcome] = {}
    empty: dict[SharedPartition, Outcome] = {}
    done: dict[SharedPartition, Outcome] = {}
    for topic in context.body.topics:
        topic_id = topic.topic_id or m.NULL_UUID
        for entry in topic.partitions:
            each = SharedPartition(topic_id, entry.partition_index, names.get(topic_id))
            batches = [
                Acknowledgment(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in entry.acknowledgement_batches
            ]
            is_refused = each.topic is not None and not _are_valid(context, batches)
            error = ErrorCode.INVALID_REQUEST if is_refused else partition_error(context, each)
            if error:
                failed[each] = Outcome(error)
            elif batches:
                done[each] = _acknowledge(context, each, batches)
            else:
                empty[each] = Outcome()
    # As in Kafka, partitions without acknowledgments are named only beside others.
    return {**done, **failed, **(empty if done else {})}


def _acknowledge(context: _AcknowledgingCall, each: SharedPartition, batches: list[Acknowledgment]) -> Outcome:
    group_id, member_id = session_key(context)
    key = SharePartitionKey(group_id, each.topic_id, each.partition)
    acknowledge = share_broker(context.broker).partitions.acknowledge
    return outcome_of(acknowledge, key, member_id, batches, context.now_ms)


def partition_error(context: RequestContext, each: SharedPartition) -> ErrorCode:
    if each.topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    refused = refusal(context, Operation.READ, ResourceType.TOPIC, each.topic)
    if refused:
        return refused
    is_known = context.broker.metadata.has_partition(TopicPartition(each.topic, each.partition))
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _are_valid(context: _AcknowledgingCall, batches: Sequence[Acknowledgment]) -> bool:
    """Return whether the acknowledgments are in order and of types that the request may have."""
    may_renew = context.version >= _FIRST_WITH_RENEWAL
    last_type = RENEW if may_renew else _LAST_TYPE_BEFORE
    previous_last = -1
    for batch in batches:
        types = batch.types
        if not previous_last <= batch.first_offset <= batch.last_offset or not types:
            return False
        if len(types) > 1 and batch.last_offset - batch.first_offset != len(types) - 1:
            return False
        if not all(0 <= kind <= last_type for kind in types):
            return False
        if RENEW in types and not context.body.is_renew_ack:
            return False
        previous_last = batch.last_offset
    return True


def complete_answer(
    context: _AcknowledgingCall, topic_form: Callable[..., Any], answers: Mapping[tuple[UUID, int], Any]
) -> m.ApiMessage:
    """Return the response: the answers of partitions, and who leads the partitions that another broker leads."""
    metadata, addresses, response = context.broker.metadata, context.addresses, context.request.api.response
    topics: dict[UUID, list[Any]] = {}
    others: set[int] = set()
    for (topic_id, partition), answer in answers.items():
        topics.setdefault(topic_id, []).append(answer)
        leadership, place = Leadership(0, 0), TopicPartition(metadata.names.get(topic_id, ""), partition)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and metadata.has_partition(place):
            leadership = metadata.leadership(place)
            others.add(leadership.leader)
        answer.current_leader = answer.LeaderIdAndEpoch(
            leader_id=leadership.leader, leader_epoch=leadership.leader_epoch
        )
    known = [(broker_id, *addresses[broker_id]) for broker_id in sorted(others) if broker_id in addresses]
    settings = share_broker(context.broker).fetch_settings(session_key(context).group_id)
    complete: m.ApiMessage = response(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=settings.record_lock_duration_ms,
        responses=[topic_form(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        node_endpoints=[response.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, host, port in known],
    )
    return complete


APIS = (api(m.ShareAcknowledgeRequest, (1, 2), acknowledge, "READ GROUP", "READ TOPIC"),)
