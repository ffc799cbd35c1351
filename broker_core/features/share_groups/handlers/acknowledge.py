"""The acknowledgment of records of share groups, in ShareAcknowledge and ShareFetch requests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker_core.broker.authorization import refusal
from broker_core.broker.partitions import Leadership
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.partitions.acknowledgment import RENEW, Acknowledgment
from broker_core.features.share_groups.partitions.sessions import SessionKey, SharedPartition
from broker_core.features.share_groups.states.state import SharePartitionKey
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import NO_LEADER, TopicPartition
from broker_core.wire import messages as m

_FIRST_WITH_RENEWAL = 2
_LAST_TYPE_BEFORE = 3
_AcknowledgingCall: TypeAlias = ApiCall[m.ShareAcknowledgeRequest | m.ShareFetchRequest]


class Acknowledged(NamedTuple):
    """The result for one partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def session_key(context: _AcknowledgingCall) -> SessionKey:
    """Return the key of the request's session; `request_error` has refused requests without one."""
    return SessionKey(context.body.group_id or "", context.body.member_id or "")


def acknowledge_all(context: _AcknowledgingCall) -> dict[SharedPartition, Acknowledged]:
    """Acknowledge what the request acknowledges; a partition is acknowledged as a whole or not at all."""
    names = context.broker.metadata.names
    failed: dict[SharedPartition, Acknowledged] = {}
    empty: dict[SharedPartition, Acknowledged] = {}
    done: dict[SharedPartition, Acknowledged] = {}
    for topic in context.body.topics:
        topic_id = topic.topic_id or m.NULL_UUID
        for entry in topic.partitions:
            each = SharedPartition(topic_id, entry.partition_index, names.get(topic_id))
            batches = [
                Acknowledgment(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in entry.acknowledgement_batches
            ]
            error = _partition_error(context, each, batches)
            if error:
                failed[each] = Acknowledged(error)
            elif batches:
                done[each] = _acknowledge(context, each, batches)
            else:
                empty[each] = Acknowledged()
    # As in Kafka, partitions without acknowledgments are named only beside others.
    return {**done, **failed, **(empty if done else {})}


def _acknowledge(context: _AcknowledgingCall, each: SharedPartition, batches: list[Acknowledgment]) -> Acknowledged:
    group_id, member_id = session_key(context)
    key = SharePartitionKey(group_id, each.topic_id, each.partition)
    try:
        share_broker(context.broker).partitions.acknowledge(key, member_id, batches, context.now_ms)
    except KafkaError as error:
        return Acknowledged(error.code, error.message or None)
    return Acknowledged()


def _partition_error(
    context: _AcknowledgingCall, each: SharedPartition, batches: Sequence[Acknowledgment]
) -> ErrorCode:
    if each.topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not _are_valid(context, batches):
        return ErrorCode.INVALID_REQUEST
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


def leaders(
    context: RequestContext, partitions: Iterable[SharedPartition]
) -> tuple[Mapping[SharedPartition, Leadership], list[tuple[int, str, int]]]:
    """Return the leaders of partitions that this broker does not lead, with their ids and addresses."""
    metadata = context.broker.metadata
    found = {}
    for each in partitions:
        place = TopicPartition(each.topic or "", each.partition)
        if metadata.has_partition(place):
            found[each] = metadata.leadership(place)
    addresses = context.addresses
    ids = sorted({leader.leader for leader in found.values()} - {NO_LEADER})
    return found, [(broker_id, *addresses[broker_id]) for broker_id in ids if broker_id in addresses]
