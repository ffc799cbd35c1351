"""The table of rights that each API needs: the operation, the type of resource, and the error without it.

Owns: the table. The handlers check in its order, for the resources in their request.
Uses: `acls`, `errors`.
Never: decides; the authorizer does.

The table follows Kafka's KafkaApis, ControllerApis and AclApis, and rules G.1. `FILTERED` means that the response omits
resources for which the client has no right, as if they did not exist.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation as Op
from broker_core.security.acls import ResourceType

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
USER, DELEGATION_TOKEN = ResourceType.USER, ResourceType.DELEGATION_TOKEN

FILTERED: Final = None

# The error for a client without the right, by resource type.
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: Op
    resource_type: ResourceType


class Check(NamedTuple):
    """The requirement of at least one of several rights; `refused` is the error without any of them."""

    one_of: tuple[Right, ...]
    refused: ErrorCode | None


def _needs(operation: Op, resource_type: ResourceType, refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    return _needs_one((operation, resource_type), refused=refused)


def _needs_one(*rights: tuple[Op, ResourceType], refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    """Return a check; by default, its error is that of the resource type of the last right."""
    if refused is ErrorCode.NONE:
        refused = REFUSALS[rights[-1][1]]
    return Check(tuple(Right(*right) for right in rights), refused)


_NOTHING: tuple[Check, ...] = ()
_GROUP_MEMBER = (_needs(Op.READ, GROUP),)

CHECKS: Final[Mapping[str, tuple[Check, ...]]] = {
    # Before the client is authenticated.
    "ApiVersions": _NOTHING,
    "SaslHandshake": _NOTHING,
    "SaslAuthenticate": _NOTHING,
    # Cluster metadata.
    "Metadata": (
        _needs(Op.DESCRIBE, TOPIC),
        # For a topic that does not exist and would be created.
        _needs_one((Op.CREATE, CLUSTER), (Op.CREATE, TOPIC)),
        # For the allowed operations on the cluster in the response; without the right there are none.
        _needs(Op.DESCRIBE, CLUSTER, FILTERED),
    ),
    "DescribeCluster": (_needs(Op.DESCRIBE, CLUSTER, FILTERED),),
    "FindCoordinator": (
        _needs(Op.DESCRIBE, GROUP),
        _needs(Op.DESCRIBE, TRANSACTIONAL_ID),
        # For share coordinators, which only brokers look up.
        _needs(Op.CLUSTER_ACTION, CLUSTER),
    ),
    # Records.
    "Produce": (_needs(Op.WRITE, TRANSACTIONAL_ID), _needs(Op.WRITE, TOPIC)),
    # A follower needs CLUSTER_ACTION instead; the error without it is the same.
    "Fetch": (_needs(Op.READ, TOPIC), _needs(Op.CLUSTER_ACTION, CLUSTER, ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
    "ListOffsets": (_needs(Op.DESCRIBE, TOPIC),),
    "OffsetForLeaderEpoch": (_needs_one((Op.CLUSTER_ACTION, CLUSTER), (Op.DESCRIBE, TOPIC)),),
    "DeleteRecords": (_needs(Op.DELETE, TOPIC),),
    # Transactions.
    "InitProducerId": (
        _needs(Op.WRITE, TRANSACTIONAL_ID),
        _needs_one((Op.WRITE, TOPIC), (Op.IDEMPOTENT_WRITE, CLUSTER)),
    ),
    "AddPartitionsToTxn": (
        _needs(Op.WRITE, TRANSACTIONAL_ID),
        _needs(Op.WRITE, TOPIC),
        # From version 4, which is for brokers, this replaces both.
        _needs(Op.CLUSTER_ACTION, CLUSTER),
    ),
    "AddOffsetsToTxn": (_needs(Op.WRITE, TRANSACTIONAL_ID), _needs(Op.READ, GROUP)),
    "TxnOffsetCommit": (_needs(Op.WRITE, TRANSACTIONAL_ID), _needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "EndTxn": (_needs(Op.WRITE, TRANSACTIONAL_ID),),
    "WriteTxnMarkers": (_needs_one((Op.ALTER, CLUSTER), (Op.CLUSTER_ACTION, CLUSTER)),),
    "DescribeProducers": (_needs(Op.READ, TOPIC),),
    "DescribeTransactions": (_needs(Op.DESCRIBE, TRANSACTIONAL_ID), _needs(Op.DESCRIBE, TOPIC, FILTERED)),
    "ListTransactions": (_needs(Op.DESCRIBE, TRANSACTIONAL_ID, FILTERED),),
    # Groups.
    "JoinGroup": _GROUP_MEMBER,
    "SyncGroup": _GROUP_MEMBER,
    "Heartbeat": _GROUP_MEMBER,
    "LeaveGroup": _GROUP_MEMBER,
    # A regular expression matches only topics that the client may describe.
    "ConsumerGroupHeartbeat": (_needs(Op.READ, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "ConsumerGroupDescribe": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "ShareGroupHeartbeat": (_needs(Op.READ, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "ShareGroupDescribe": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "ShareFetch": (_needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "ShareAcknowledge": (_needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "InitializeShareGroupState": (_needs(Op.CLUSTER_ACTION, CLUSTER),),
    "ReadShareGroupState": (_needs(Op.CLUSTER_ACTION, CLUSTER),),
    "WriteShareGroupState": (_needs(Op.CLUSTER_ACTION, CLUSTER),),
    "DeleteShareGroupState": (_needs(Op.CLUSTER_ACTION, CLUSTER),),
    "ReadShareGroupStateSummary": (_needs(Op.CLUSTER_ACTION, CLUSTER),),
    "DescribeShareGroupOffsets": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "AlterShareGroupOffsets": (_needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "DeleteShareGroupOffsets": (_needs(Op.DELETE, GROUP), _needs(Op.READ, TOPIC)),
    "DescribeGroups": (_needs(Op.DESCRIBE, GROUP),),
    "ListGroups": (_needs_one((Op.DESCRIBE, CLUSTER), (Op.DESCRIBE, GROUP), refused=FILTERED),),
    "DeleteGroups": (_needs(Op.DELETE, GROUP),),
    "OffsetCommit": (_needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "OffsetFetch": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "OffsetDelete": (_needs(Op.DELETE, GROUP), _needs(Op.READ, TOPIC)),
    # Topics and configuration.
    "CreateTopics": (
        _needs_one((Op.CREATE, CLUSTER), (Op.CREATE, TOPIC)),
        # Without it the response omits the configuration.
        _needs(Op.DESCRIBE_CONFIGS, TOPIC, FILTERED),
    ),
    # By topic id, the error contains the topic's name only if the client may describe the topic.
    "DeleteTopics": (
        _needs_one((Op.DELETE, CLUSTER), (Op.DESCRIBE, TOPIC)),
        _needs_one((Op.DELETE, CLUSTER), (Op.DELETE, TOPIC)),
    ),
    "CreatePartitions": (_needs(Op.ALTER, TOPIC),),
    "DescribeConfigs": (
        _needs(Op.DESCRIBE_CONFIGS, TOPIC),
        _needs(Op.DESCRIBE_CONFIGS, CLUSTER),
        _needs(Op.DESCRIBE_CONFIGS, GROUP),
    ),
    "IncrementalAlterConfigs": (
        _needs(Op.ALTER_CONFIGS, TOPIC),
        _needs(Op.ALTER_CONFIGS, CLUSTER),
        _needs(Op.ALTER_CONFIGS, GROUP),
    ),
    "AlterConfigs": (
        _needs(Op.ALTER_CONFIGS, TOPIC),
        _needs(Op.ALTER_CONFIGS, CLUSTER),
        _needs(Op.ALTER_CONFIGS, GROUP),
    ),
    "ListConfigResources": (_needs(Op.DESCRIBE_CONFIGS, CLUSTER),),
    "DescribeClientQuotas": (_needs(Op.DESCRIBE_CONFIGS, CLUSTER),),
    "AlterClientQuotas": (_needs(Op.ALTER_CONFIGS, CLUSTER),),
    # The cluster.
    "DescribeTopicPartitions": (_needs(Op.DESCRIBE, TOPIC),),
    "ElectLeaders": (_needs(Op.ALTER, CLUSTER),),
    "AlterPartitionReassignments": (_needs(Op.ALTER, CLUSTER),),
    "ListPartitionReassignments": (_needs(Op.DESCRIBE, CLUSTER),),
    "DescribeLogDirs": (_needs(Op.DESCRIBE, CLUSTER),),
    "AlterReplicaLogDirs": (_needs(Op.ALTER, CLUSTER),),
    "DescribeQuorum": (_needs(Op.DESCRIBE, CLUSTER),),
    "UnregisterBroker": (_needs(Op.ALTER, CLUSTER),),
    "UpdateFeatures": (_needs(Op.ALTER, CLUSTER),),
    # For another owner than the client; renewing and expiring are for owner and renewers.
    "CreateDelegationToken": (_needs(Op.CREATE_TOKENS, USER),),
    "RenewDelegationToken": _NOTHING,
    "ExpireDelegationToken": _NOTHING,
    "DescribeDelegationToken": (
        _needs_one((Op.DESCRIBE, DELEGATION_TOKEN), (Op.DESCRIBE_TOKENS, USER), refused=FILTERED),
    ),
    "DescribeAcls": (_needs(Op.DESCRIBE, CLUSTER),),
    "CreateAcls": (_needs(Op.ALTER, CLUSTER),),
    "DeleteAcls": (_needs(Op.ALTER, CLUSTER),),
    "DescribeUserScramCredentials": (_needs(Op.DESCRIBE, CLUSTER),),
    "AlterUserScramCredentials": (_needs(Op.ALTER, CLUSTER),),
}
