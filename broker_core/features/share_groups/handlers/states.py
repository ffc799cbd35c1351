"""The APIs of the share coordinator (KIP-932), by which brokers keep the states of share partitions.

Brokers here call the coordinators directly; the requests are for other persisters and for tests.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from broker_core.broker.api import Api, api
from broker_core.broker.authorization import refusal
from broker_core.broker.request_context import ApiCall
from broker_core.errors import KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.states.state import (
    UNINITIALIZED,
    Outcome,
    SharePartitionKey,
    ShareWrite,
    StateBatch,
)
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from broker_core.wire.served import PARTITIONS, echo

_FIRST_WITH_COMPLETE_COUNT = 1
_ReadBatch = m.ReadShareGroupStateResponse.ReadStateResult.PartitionResult.StateBatch
# Returns the fields of the answer for a share partition, besides its number; raises its error.
_Handle = Callable[[ApiCall[Any], SharePartitionKey, Any], Mapping[str, Any]]


def _initialize(
    context: ApiCall[Any],
    key: SharePartitionKey,
    entry: m.InitializeShareGroupStateRequest.InitializeStateData.PartitionData,
) -> Mapping[str, Any]:
    share_broker(context.broker).states.initialize(key, entry.state_epoch, entry.start_offset, context.now_ms)
    return {}


def _read(
    context: ApiCall[Any], key: SharePartitionKey, entry: m.ReadShareGroupStateRequest.ReadStateData.PartitionData
) -> Mapping[str, Any]:
    found = share_broker(context.broker).states.read(key, entry.leader_epoch, context.now_ms)
    return {
        "state_epoch": found.state_epoch,
        "start_offset": found.start_offset,
        "state_batches": [_ReadBatch(**batch._asdict()) for batch in found.batches],
    }


def _write(
    context: ApiCall[Any], key: SharePartitionKey, entry: m.WriteShareGroupStateRequest.WriteStateData.PartitionData
) -> Mapping[str, Any]:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in entry.state_batches
    )
    count = entry.delivery_complete_count if context.version >= _FIRST_WITH_COMPLETE_COUNT else UNINITIALIZED
    wanted = ShareWrite(entry.state_epoch, entry.leader_epoch, entry.start_offset, batches, count)
    share_broker(context.broker).states.write(key, wanted, context.now_ms)
    return {}


def _delete(context: ApiCall[Any], key: SharePartitionKey, _: object) -> Mapping[str, Any]:
    share_broker(context.broker).states.delete(key, context.now_ms)
    return {}


def _read_summary(context: ApiCall[Any], key: SharePartitionKey, _: object) -> Mapping[str, Any]:
    found = share_broker(context.broker).states.summarize(key)
    return {
        "state_epoch": found.state_epoch,
        "leader_epoch": found.leader_epoch,
        "start_offset": found.start_offset,
        "delivery_complete_count": found.delivery_complete_count,
    }


def _answer(context: ApiCall[Any], topic_form: Any, handle: _Handle) -> Any:
    """Answer with a result for each partition; each topic and partition once, with the last entry that names it."""
    body, response = context.body, context.request.api.response
    refused = refusal(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    is_malformed = not body.group_id or not body.topics or not all(topic.partitions for topic in body.topics)
    if is_malformed and not refused:
        return response(results=[])
    topics: dict[UUID, dict[int, m.DataContainer]] = {}
    for topic in body.topics:
        topic_id = topic.topic_id or m.NULL_UUID
        entries = topics.setdefault(topic_id, {})
        for entry in topic.partitions:
            outcome, fields = Outcome.of(refused), {}
            if not refused:
                try:
                    fields = dict(handle(context, SharePartitionKey(body.group_id, topic_id, entry.partition), entry))
                except KafkaError as error:
                    outcome = Outcome(error.code, error.message)
            entries[entry.partition] = topic_form.PartitionResult(
                partition=entry.partition, error_code=outcome.error, error_message=outcome.message, **fields
            )
    return response(
        results=[topic_form(topic_id=each, partitions=list(entries.values())) for each, entries in topics.items()]
    )


def _served(request: type[m.ApiMessage], last_version: int, topic_form: Any, handle: _Handle) -> Api:
    return api(
        request,
        (0, last_version),
        lambda context: _answer(context, topic_form, handle),
        # Only brokers ask for these states.
        "CLUSTER_ACTION CLUSTER",
        echoes=echo("topics", "results", PARTITIONS),
    )


APIS = (
    _served(
        m.InitializeShareGroupStateRequest, 0, m.InitializeShareGroupStateResponse.InitializeStateResult, _initialize
    ),
    _served(m.ReadShareGroupStateRequest, 0, m.ReadShareGroupStateResponse.ReadStateResult, _read),
    _served(m.WriteShareGroupStateRequest, 1, m.WriteShareGroupStateResponse.WriteStateResult, _write),
    _served(m.DeleteShareGroupStateRequest, 0, m.DeleteShareGroupStateResponse.DeleteStateResult, _delete),
    _served(
        m.ReadShareGroupStateSummaryRequest,
        1,
        m.ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
        _read_summary,
    ),
)
