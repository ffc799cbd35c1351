"""Lead each request to its handler: the one door in.

A handler gets the call and answers it now or later. A `KafkaError` that no handler turned into an answer of
its API's form is a bug, like any other exception: the connection is closed and the broker lives on.
"""

from collections.abc import Callable, Mapping
from functools import partial

from broker_core.broker.call import Call
from broker_core.broker.handlers import (
    acls,
    configs,
    consumer_groups,
    features,
    fetch,
    groups,
    lookups,
    markers,
    metadata,
    offsets,
    produce,
    sasl,
    scram_users,
    topics,
    transactions,
)
from broker_core.errors import KafkaError
from broker_core.wire.error_answers import error_answer

Handler = Callable[[Call], None]

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
    "UpdateFeatures": features.update_features,
    "DescribeAcls": acls.describe,
    "CreateAcls": acls.create,
    "DeleteAcls": acls.delete,
    "AlterUserScramCredentials": scram_users.alter,
    "DescribeUserScramCredentials": scram_users.describe,
    "DescribeConfigs": configs.describe_configs,
    "IncrementalAlterConfigs": configs.alter_configs,
    "Produce": produce.produce,
    "Fetch": fetch.fetch,
    "ListOffsets": lookups.list_offsets,
    "OffsetForLeaderEpoch": lookups.offset_for_leader_epoch,
    "DeleteRecords": lookups.delete_records,
    "DescribeProducers": lookups.describe_producers,
    "InitProducerId": transactions.init_producer_id,
    "AddPartitionsToTxn": transactions.add_partitions,
    "AddOffsetsToTxn": transactions.add_offsets,
    "EndTxn": transactions.end_transaction,
    "DescribeTransactions": transactions.describe_transactions,
    "ListTransactions": transactions.list_transactions,
    "WriteTxnMarkers": markers.write_markers,
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
}


def _handle_without_controller(handler: Handler, call: Call) -> None:
    """Answer what a broker that is cut off cannot have the controller record as refused, whatever it is."""
    try:
        handler(call)
    except KafkaError as error:
        if call.answered:
            raise
        call.answer(error_answer(call.request, error.code))


def dispatch(call: Call) -> None:
    """Hand the call to the handler of its API, or to those who stand at the door."""
    handler, hooks = HANDLERS[call.request.api.name], call.broker.cluster.hooks
    if call.broker.cluster.is_past:
        handler = partial(_handle_without_controller, handler)
    if hooks is None:
        handler(call)
    else:
        hooks.dispatch(call, handler)
