"""The table of handlers, and the dispatch of requests to them.

A handler gets the context of a request and answers it now or later. A `KafkaError` that a handler does not turn into
a response is a bug, like any other exception: the connection is closed and the broker continues.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from broker_core.broker.handlers import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    delegation_tokens,
    features,
    fetch,
    groups,
    leaders,
    log_dirs,
    log_queries,
    metadata,
    offsets,
    produce,
    quorum,
    sasl,
    scram_users,
    share_acknowledgments,
    share_fetch,
    share_groups,
    share_offsets,
    share_states,
    topic_partitions,
    topics,
    transaction_markers,
    transactions,
)
from broker_core.broker.recorder import Recorder
from broker_core.broker.request_context import ApiCall
from broker_core.errors import KafkaError
from broker_core.wire.error_responses import error_response

Handler = Callable[[ApiCall[Any]], None]

HANDLERS: Mapping[str, Handler] = {
    "ApiVersions": metadata.api_versions,
    "SaslHandshake": sasl.handshake,
    "SaslAuthenticate": sasl.authenticate,
    "Metadata": metadata.metadata,
    "DescribeCluster": metadata.describe_cluster,
    "FindCoordinator": metadata.find_coordinator,
    "CreateTopics": topics.create_topics,
    "DeleteTopics": topics.delete_topics,
    "CreatePartitions": topics.create_partitions,
    "DescribeTopicPartitions": topic_partitions.describe,
    "ElectLeaders": leaders.elect,
    "AlterPartitionReassignments": leaders.reassign,
    "ListPartitionReassignments": leaders.list_reassignments,
    "DescribeLogDirs": log_dirs.describe,
    "AlterReplicaLogDirs": log_dirs.alter,
    "DescribeQuorum": quorum.describe,
    "UnregisterBroker": quorum.unregister,
    "UpdateFeatures": features.update_features,
    "DescribeAcls": acls.describe,
    "CreateAcls": acls.create,
    "DeleteAcls": acls.delete,
    "AlterUserScramCredentials": scram_users.alter,
    "DescribeUserScramCredentials": scram_users.describe,
    "CreateDelegationToken": delegation_tokens.create,
    "RenewDelegationToken": delegation_tokens.renew,
    "ExpireDelegationToken": delegation_tokens.expire,
    "DescribeDelegationToken": delegation_tokens.describe,
    "DescribeConfigs": configs.describe_configs,
    "IncrementalAlterConfigs": configs.alter_configs,
    "DescribeClientQuotas": client_quotas.describe,
    "AlterClientQuotas": client_quotas.alter,
    "AlterConfigs": configs.replace_configs,
    "ListConfigResources": configs.list_config_resources,
    "Produce": produce.produce,
    "Fetch": fetch.fetch,
    "ListOffsets": log_queries.list_offsets,
    "OffsetForLeaderEpoch": log_queries.offset_for_leader_epoch,
    "DeleteRecords": log_queries.delete_records,
    "DescribeProducers": log_queries.describe_producers,
    "InitProducerId": transactions.init_producer_id,
    "AddPartitionsToTxn": transactions.add_partitions,
    "AddOffsetsToTxn": transactions.add_offsets,
    "EndTxn": transactions.end_transaction,
    "DescribeTransactions": transactions.describe_transactions,
    "ListTransactions": transactions.list_transactions,
    "WriteTxnMarkers": transaction_markers.write_markers,
    "TxnOffsetCommit": offsets.commit_in_transaction,
    "OffsetCommit": offsets.commit,
    "OffsetFetch": offsets.fetch,
    "OffsetDelete": offsets.delete,
    "JoinGroup": groups.join,
    "SyncGroup": groups.sync,
    "Heartbeat": groups.heartbeat,
    "LeaveGroup": groups.leave,
    "ListGroups": groups.list_groups,
    "DescribeGroups": groups.describe_groups,
    "DeleteGroups": groups.delete_groups,
    "ConsumerGroupHeartbeat": consumer_groups.heartbeat,
    "ConsumerGroupDescribe": consumer_groups.describe,
    "ShareGroupHeartbeat": share_groups.heartbeat,
    "ShareGroupDescribe": share_groups.describe,
    "ShareFetch": share_fetch.fetch,
    "ShareAcknowledge": share_acknowledgments.acknowledge,
    "InitializeShareGroupState": share_states.initialize,
    "ReadShareGroupState": share_states.read,
    "WriteShareGroupState": share_states.write,
    "DeleteShareGroupState": share_states.delete,
    "ReadShareGroupStateSummary": share_states.read_summary,
    "DescribeShareGroupOffsets": share_offsets.describe,
    "AlterShareGroupOffsets": share_offsets.alter,
    "DeleteShareGroupOffsets": share_offsets.delete,
}


def _handle_without_controller(handler: Handler, context: ApiCall[Any]) -> None:
    """Run the handler on a broker that is cut off; a `KafkaError` becomes the error of the whole response."""
    try:
        handler(context)
    except KafkaError as error:
        if context.answered:
            raise
        context.answer(error_response(context.request, error.code))


class RequestInterceptor(Protocol):
    """The interface of fault injection: it gets each request before its handler."""

    # What records requests and responses, while a test asks for it.
    recorder: Recorder | None

    def intercept(self, context: ApiCall[Any], handler: Handler) -> None:
        """Pass the request to its handler, now or later, or drop it."""
        ...


def dispatch(context: ApiCall[Any], interceptor: RequestInterceptor | None = None) -> None:
    """Pass the request to the handler of its API, or to the interceptor if there is one."""
    handler = HANDLERS[context.request.api.name]
    if context.broker.is_stale:
        handler = partial(_handle_without_controller, handler)
    if interceptor is None:
        handler(context)
    else:
        interceptor.intercept(context, handler)
