"""The operations that brokers allow the principal on topics, groups and the cluster (KIP-430)."""

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from kafka.admin import ACLOperation as ACLOperation
from kafka.admin import ResourceType as ResourceType
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from broker_core.errors import ErrorCode
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS, metadata_request
from spark_eos.client.response_reader import asked_part
from spark_eos.errors import AuthorizationError, EosKafkaError

_Answer: TypeAlias = MetadataResponse | EosKafkaError
_NONE_ALLOWED: Final[frozenset[int]] = frozenset()
_FIRST_TOPIC_OPERATIONS: Final = 8
_FIRST_GROUP_OPERATIONS: Final = 3
# From version 6 on, a group that does not exist is an error, and its allowed operations are not reported.
_LAST_GROUP_DESCRIPTION: Final = 5


def topic_operations(client: KafkaClient, topics: Collection[str]) -> dict[str, frozenset[int]]:
    """Return the allowed operations on each topic that exists or that the principal may not describe."""
    return _by_topic(client.ask_metadata(lambda: _topics_request(topics)))


def is_write_refused(client: KafkaClient, topic: str) -> bool:
    """Return whether the principal may not write to a topic, according to every broker that responds.

    A broker may not know yet, or not any more, of a right that was granted. So one refusal is followed by a look at
    each broker, until one allows it or `MISSING_TOPIC_GRACE_SECONDS` are over.
    """
    deadline = client.deadline(MISSING_TOPIC_GRACE_SECONDS * 1000)
    answers: Iterable[_Answer] = [client.ask_metadata(lambda: _topics_request([topic]))]
    for attempt in client.attempts(deadline):
        if attempt:
            patience_ms = client.remaining_ms(deadline)
            answers = client.ask_each_broker(lambda: _topics_request([topic]), timeout_ms=patience_ms).values()
        said = [_by_topic(each).get(topic) for each in answers if not isinstance(each, EosKafkaError)]
        if not said or not all(map(_is_refusal, said)):
            return False
    return True


def _is_refusal(allowed: frozenset[int] | None) -> bool:
    """Return whether a response refuses to write; without DESCRIBE, which makes a topic visible, it proves nothing."""
    return allowed is not None and ACLOperation.DESCRIBE in allowed and ACLOperation.WRITE not in allowed


def _topics_request(topics: Collection[str]) -> MetadataRequest:
    return metadata_request(topics, min_version=_FIRST_TOPIC_OPERATIONS, with_operations=True)


def _by_topic(response: MetadataResponse) -> dict[str, frozenset[int]]:
    found = {}
    for topic in response.topics:
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
    answer = asked_part(response.groups, lambda each: each.group_id == group_id, "DescribeGroups")
    return _NONE_ALLOWED if answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED else _operations(answer)


def _operations(answer: DescribeClusterResponse | DescribeGroupsResponse.DescribedGroup) -> frozenset[int] | None:
    if answer.error_code != ErrorCode.NONE or answer.authorized_operations is None:
        return None
    return frozenset(answer.authorized_operations)
