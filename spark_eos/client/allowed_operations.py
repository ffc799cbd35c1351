"""The operations that brokers allow the principal on topics, groups and the cluster (KIP-430)."""

from collections.abc import Collection
from typing import Final

from kafka.admin import ACLOperation, ResourceType
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafka.protocol.metadata import MetadataRequest

from broker_core.errors import ErrorCode
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.response_reader import only_part
from spark_eos.errors import AuthorizationError

__all__ = ["ACLOperation", "ResourceType", "cluster_operations", "group_operations", "topic_operations"]

_NONE_ALLOWED: Final[frozenset[int]] = frozenset()
_FIRST_TOPIC_OPERATIONS: Final = 8
_FIRST_GROUP_OPERATIONS: Final = 3
# From version 6 on, a group that does not exist is an error, and its allowed operations are not reported.
_LAST_GROUP_DESCRIPTION: Final = 5


def topic_operations(client: KafkaClient, topics: Collection[str]) -> dict[str, frozenset[int]]:
    """Return the allowed operations on each topic that exists or that the principal may not describe."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=_FIRST_TOPIC_OPERATIONS,
    )
    found = {}
    for topic in client.send(None, request).topics:
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found[topic.name or ""] = _NONE_ALLOWED
        elif topic.error_code == ErrorCode.NONE and topic.authorized_operations is not None:
            found[topic.name or ""] = frozenset(topic.authorized_operations)
    return found


def cluster_operations(client: KafkaClient) -> frozenset[int] | None:
    """Return the allowed operations on the cluster, or None if they are not reported."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    response = client.send(None, request)
    return _operations(response)


def group_operations(client: KafkaClient, group_id: str) -> frozenset[int] | None:
    """Return the allowed operations on a group, which need not exist, or None if they are not reported."""
    try:
        node_id = client.find_coordinator(CoordinatorType.GROUP, group_id)
    except AuthorizationError:
        return _NONE_ALLOWED
    request = DescribeGroupsRequest(
        groups=[group_id],
        include_authorized_operations=True,
        min_version=_FIRST_GROUP_OPERATIONS,
        max_version=_LAST_GROUP_DESCRIPTION,
    )
    response = client.send(node_id, request)
    answer = only_part(response.groups, "DescribeGroups")
    return _NONE_ALLOWED if answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED else _operations(answer)


def _operations(answer: DescribeClusterResponse | DescribeGroupsResponse.DescribedGroup) -> frozenset[int] | None:
    if answer.error_code != ErrorCode.NONE or answer.authorized_operations is None:
        return None
    return frozenset(answer.authorized_operations)
