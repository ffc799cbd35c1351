"""The ShareAcknowledge API: a request of a share session that fetches nothing (KIP-932)."""

from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.request_context import ApiCall
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.handlers.acknowledge import acknowledge_all, leaders, session_key
from broker_core.features.share_groups.handlers.fetch import answer_error, request_error
from broker_core.features.share_groups.partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH
from broker_core.security.acls import Operation
from broker_core.security.checks import GROUP, TOPIC, needs
from broker_core.wire import messages as m


def acknowledge(context: ApiCall[m.ShareAcknowledgeRequest]) -> None:
    """Acknowledge records; the last request of a session closes it."""
    error = request_error(context)
    if not error:
        try:
            _advance(context)
        except KafkaError as failure:
            error = failure.code
    if error:
        answer_error(context, error)
        return
    results = acknowledge_all(context)
    response = m.ShareAcknowledgeResponse
    form = response.ShareAcknowledgeTopicResponse
    topics: dict[UUID, list[m.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse.PartitionData]] = {}
    moved = [each for each, result in results.items() if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER]
    current, endpoints = leaders(context, moved)
    for each, result in results.items():
        leader = current.get(each)
        topics.setdefault(each.topic_id, []).append(
            form.PartitionData(
                partition_index=each.partition,
                error_code=result.error,
                error_message=result.message,
                current_leader=form.PartitionData.LeaderIdAndEpoch(
                    leader_id=0 if leader is None else leader.leader,
                    leader_epoch=0 if leader is None else leader.leader_epoch,
                ),
            )
        )
    key = session_key(context)
    settings = share_broker(context.broker).fetch_settings(key.group_id)
    if context.body.share_session_epoch == FINAL_EPOCH:
        share_broker(context.broker).partitions.close_session(key)
    context.answer(
        response(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=settings.record_lock_duration_ms,
            responses=[form(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            node_endpoints=[
                response.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, host, port in endpoints
            ],
        )
    )


def _advance(context: ApiCall[m.ShareAcknowledgeRequest]) -> None:
    """Count the request in its session; raise the error of its epoch."""
    epoch = context.body.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a fetch")
    session = share_broker(context.broker).partitions.sessions.get(session_key(context))
    if epoch != FINAL_EPOCH:
        session.advance(epoch)


APIS = (
    api(m.ShareAcknowledgeRequest, (1, 2), acknowledge, needs(Operation.READ, GROUP), needs(Operation.READ, TOPIC)),
)
