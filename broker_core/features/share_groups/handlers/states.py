"""The APIs of the share coordinator (KIP-932), by which brokers keep the states of share partitions.

Brokers here call the coordinators directly; the requests are for other persisters and for tests.
"""

from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal
from broker_core.broker.request_context import ApiCall
from broker_core.errors import STANDARD_MESSAGES
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.states.requests import Outcome, ShareWrite
from broker_core.features.share_groups.states.state import UNINITIALIZED, SharePartitionKey, StateBatch
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, needs
from broker_core.wire import messages as m
from broker_core.wire.served import PARTITIONS, Echo

_FIRST_WITH_COMPLETE_COUNT = 1
_StateCall: TypeAlias = ApiCall[
    m.DeleteShareGroupStateRequest
    | m.InitializeShareGroupStateRequest
    | m.ReadShareGroupStateRequest
    | m.ReadShareGroupStateSummaryRequest
    | m.WriteShareGroupStateRequest
]


def initialize(context: ApiCall[m.InitializeShareGroupStateRequest]) -> None:
    """Initialize states."""
    states = share_broker(context.broker).states
    response = m.InitializeShareGroupStateResponse
    form = response.InitializeStateResult.PartitionResult

    def result(
        key: SharePartitionKey, entry: m.InitializeShareGroupStateRequest.InitializeStateData.PartitionData
    ) -> m.DataContainer:
        outcome = states.initialize(key, entry.state_epoch, entry.start_offset, context.now_ms)
        return form(**_outcome(key, outcome))

    _answer(
        context,
        m.InitializeShareGroupStateResponse,
        m.InitializeShareGroupStateResponse.InitializeStateResult,
        form,
        result,
    )


def read(context: ApiCall[m.ReadShareGroupStateRequest]) -> None:
    """Read states, for the leaders of their partitions."""
    states = share_broker(context.broker).states
    response = m.ReadShareGroupStateResponse
    form = response.ReadStateResult.PartitionResult

    def result(
        key: SharePartitionKey, entry: m.ReadShareGroupStateRequest.ReadStateData.PartitionData
    ) -> m.DataContainer:
        found = states.read(key, entry.leader_epoch, context.now_ms)
        return form(
            **_outcome(key, found.outcome),
            state_epoch=found.state_epoch,
            start_offset=found.start_offset,
            state_batches=[form.StateBatch(**batch._asdict()) for batch in found.batches],
        )

    _answer(context, response, response.ReadStateResult, form, result)


def write(context: ApiCall[m.WriteShareGroupStateRequest]) -> None:
    """Write states, for the leaders of their partitions."""
    states = share_broker(context.broker).states
    response = m.WriteShareGroupStateResponse
    form = response.WriteStateResult.PartitionResult
    has_count = context.version >= _FIRST_WITH_COMPLETE_COUNT

    def result(
        key: SharePartitionKey, entry: m.WriteShareGroupStateRequest.WriteStateData.PartitionData
    ) -> m.DataContainer:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in entry.state_batches
        )
        count = entry.delivery_complete_count if has_count else UNINITIALIZED
        wanted = ShareWrite(entry.state_epoch, entry.leader_epoch, entry.start_offset, batches, count)
        return form(**_outcome(key, states.write(key, wanted, context.now_ms)))

    _answer(context, response, response.WriteStateResult, form, result)


def delete(context: ApiCall[m.DeleteShareGroupStateRequest]) -> None:
    """Delete states."""
    states = share_broker(context.broker).states
    response = m.DeleteShareGroupStateResponse
    form = response.DeleteStateResult.PartitionResult

    def result(key: SharePartitionKey, _: object) -> m.DataContainer:
        return form(**_outcome(key, states.delete(key, context.now_ms)))

    _answer(context, response, response.DeleteStateResult, form, result)


def read_summary(context: ApiCall[m.ReadShareGroupStateSummaryRequest]) -> None:
    """Read the offsets of states, for administrators."""
    states = share_broker(context.broker).states
    response = m.ReadShareGroupStateSummaryResponse
    form = response.ReadStateSummaryResult.PartitionResult

    def result(key: SharePartitionKey, _: object) -> m.DataContainer:
        found = states.summarize(key)
        return form(
            **_outcome(key, found.outcome),
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset if not found.outcome.error else 0,
            delivery_complete_count=found.delivery_complete_count,
        )

    _answer(
        context,
        m.ReadShareGroupStateSummaryResponse,
        m.ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
        form,
        result,
    )


def _answer(
    context: _StateCall,
    response: Callable[..., m.ApiMessage],
    topic_form: Callable[..., m.DataContainer],
    form: Callable[..., m.DataContainer],
    result: Callable[[SharePartitionKey, Any], m.DataContainer],
) -> None:
    """Answer with a result for each partition; each topic and partition once, with the last entry that names it."""
    body = context.body
    refused = refusal(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    is_malformed = not body.group_id or not body.topics or not all(topic.partitions for topic in body.topics)
    if is_malformed and not refused:
        context.answer(response(results=[]))
        return
    topics: dict[UUID, dict[int, m.DataContainer]] = {}
    for topic in body.topics:
        entries = topics.setdefault(topic.topic_id or m.NULL_UUID, {})
        for entry in topic.partitions:
            if refused:
                entries[entry.partition] = form(
                    partition=entry.partition, error_code=refused, error_message=STANDARD_MESSAGES[refused]
                )
            else:
                key = SharePartitionKey(body.group_id, topic.topic_id or m.NULL_UUID, entry.partition)
                entries[entry.partition] = result(key, entry)
    context.answer(
        response(
            results=[
                topic_form(topic_id=topic_id, partitions=list(entries.values())) for topic_id, entries in topics.items()
            ]
        )
    )


def _outcome(key: SharePartitionKey, outcome: Outcome) -> dict[str, Any]:
    return {"partition": key.partition, "error_code": outcome.error, "error_message": outcome.message}


# Only brokers ask for these states.
_OF_BROKERS = needs(Operation.CLUSTER_ACTION, CLUSTER)
_ECHOES = (Echo("topics", "results", inner=PARTITIONS),)
APIS = (
    api(
        m.InitializeShareGroupStateRequest,
        (0, 0),
        initialize,
        _OF_BROKERS,
        echoes=_ECHOES,
    ),
    api(
        m.ReadShareGroupStateRequest,
        (0, 0),
        read,
        _OF_BROKERS,
        echoes=_ECHOES,
    ),
    api(
        m.WriteShareGroupStateRequest,
        (0, 1),
        write,
        _OF_BROKERS,
        echoes=_ECHOES,
    ),
    api(
        m.DeleteShareGroupStateRequest,
        (0, 0),
        delete,
        _OF_BROKERS,
        echoes=_ECHOES,
    ),
    api(
        m.ReadShareGroupStateSummaryRequest,
        (0, 1),
        read_summary,
        _OF_BROKERS,
        echoes=_ECHOES,
    ),
)
