"""The table of rights that each API needs: the operation, the type of resource, and the error without it.

Owns: the table. The handlers check in its order, for the resources in their request.
Uses: `acls`, `errors`.
Never: decides; the authorizer does.

From Kafka's KafkaApis, ControllerApis and AclApis, and rules G.1. `FILTERED` stands for an answer that leaves out
what the client may not see, as if it were not there.
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

FILTERED: Final = None

# The error for a client that may not do something to a resource of this type.
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: Op
    resource_type: ResourceType


class Check(NamedTuple):
    """The requirement of one of several rights; `refused` is the error for a client that has none of them."""

    one_of: tuple[Right, ...]
    refused: ErrorCode | None


def _needs(operation: Op, resource_type: ResourceType, refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    return _needs_one((operation, resource_type), refused=refused)


def _needs_one(*rights: tuple[Op, ResourceType], refused: ErrorCode | None = ErrorCode.NONE) -> Check:
    """Make a check; if nothing else is said, it is refused in the words of the type of its last right."""
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
    # Who is there.
    "Metadata": (
        _needs(Op.DESCRIBE, TOPIC),
        # For a topic that is not there and would be created.
        _needs_one((Op.CREATE, CLUSTER), (Op.CREATE, TOPIC)),
        # For the operations allowed on the cluster, which are none without it.
        _needs(Op.DESCRIBE, CLUSTER, FILTERED),
    ),
    "DescribeCluster": (_needs(Op.DESCRIBE, CLUSTER, FILTERED),),
    "FindCoordinator": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TRANSACTIONAL_ID)),
    # Data.
    "Produce": (_needs(Op.WRITE, TRANSACTIONAL_ID), _needs(Op.WRITE, TOPIC)),
    # A follower needs the right of a broker instead, and is refused in the same word.
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
        # From version 4 on, which is for brokers, instead of both.
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
    # An expression matches only what the client may describe.
    "ConsumerGroupHeartbeat": (_needs(Op.READ, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "ConsumerGroupDescribe": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "DescribeGroups": (_needs(Op.DESCRIBE, GROUP),),
    "ListGroups": (_needs_one((Op.DESCRIBE, CLUSTER), (Op.DESCRIBE, GROUP), refused=FILTERED),),
    "DeleteGroups": (_needs(Op.DELETE, GROUP),),
    "OffsetCommit": (_needs(Op.READ, GROUP), _needs(Op.READ, TOPIC)),
    "OffsetFetch": (_needs(Op.DESCRIBE, GROUP), _needs(Op.DESCRIBE, TOPIC)),
    "OffsetDelete": (_needs(Op.DELETE, GROUP), _needs(Op.READ, TOPIC)),
    # Topics and settings.
    "CreateTopics": (
        _needs_one((Op.CREATE, CLUSTER), (Op.CREATE, TOPIC)),
        # Without it the answer leaves the settings out.
        _needs(Op.DESCRIBE_CONFIGS, TOPIC, FILTERED),
    ),
    # Besides, a client that may describe the topic of an id learns its name, though it may not delete it.
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
    # The cluster.
    "UpdateFeatures": (_needs(Op.ALTER, CLUSTER),),
    "DescribeAcls": (_needs(Op.DESCRIBE, CLUSTER),),
    "CreateAcls": (_needs(Op.ALTER, CLUSTER),),
    "DeleteAcls": (_needs(Op.ALTER, CLUSTER),),
    "DescribeUserScramCredentials": (_needs(Op.DESCRIBE, CLUSTER),),
    "AlterUserScramCredentials": (_needs(Op.ALTER, CLUSTER),),
}
