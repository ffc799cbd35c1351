"""The marker that ends a producer's transaction in one partition, from an administrator (WriteTxnMarkers, KIP-664)."""

from typing import Final

from kafka.protocol.producer import WriteTxnMarkersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.error_table import code_name
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import HIDDEN_TOPIC, MISSING_TOPIC_GRACE_SECONDS, WAITED_FOR, problem_with
from spark_eos.client.response_reader import only_part
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnsupportedError,
)

# The last version whose markers have the epoch of the transaction. From version 2 on it would be the next one.
_LAST_VERSION: Final = 1
# The broker wrote nothing, and another attempt may succeed.
_RETRIED: Final = WAITED_FOR | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# The broker may have written the marker.
_UNKNOWN_OUTCOME: Final = frozenset({
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
})  # fmt: skip
_RIGHTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant the principal READ on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Grant the principal ALTER on the cluster",
}
_CHECK_FIRST: Final = "Check with describe-producers or list before you try again"


def write_end_marker(
    client: KafkaClient,
    topic_partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    commit: bool,
) -> None:
    """Have the partition's leader write the marker that commits or aborts the producer's open transaction there.

    A marker whose response was lost is not sent again: the producer may have begun a new transaction under the same
    epoch. Raises `UnansweredError` then, and `TopicError`, `AuthorizationError`, `UnsupportedError` or `BrokerError` if
    the broker refuses.
    """
    what = f"WriteTxnMarkers for {topic_partition}"
    deadline = client.deadline()
    missing_until = min(deadline, client.runtime.clock.monotonic() + MISSING_TOPIC_GRACE_SECONDS)
    attempt = 0
    while True:
        leader, code = _leader_of(client, topic_partition)
        if leader is not None:
            request = _request(topic_partition, producer_id, producer_epoch, coordinator_epoch, commit)
            code = _ask(client, leader, request, what)
        if code == ErrorCode.NONE:
            return
        until = missing_until if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else deadline
        if code not in _RETRIED or not client.back_off(attempt, until):
            raise _error(code, what)
        attempt += 1


def _leader_of(client: KafkaClient, topic_partition: TopicPartition) -> tuple[int | None, int]:
    """Return the leader's node id, or None and the reason that there is none."""
    topic = client.metadata([topic_partition.topic]).get(topic_partition.topic)
    code = problem_with(topic, need_leaders=False)
    if topic is None or code != ErrorCode.NONE:
        return None, code
    partition = topic.partitions.get(topic_partition.partition)
    if partition is None:
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return (partition.leader, ErrorCode.NONE) if partition.leader >= 0 else (None, ErrorCode.LEADER_NOT_AVAILABLE)


def _request(
    topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool
) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=topic_partition.topic, partition_indexes=[topic_partition.partition])
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commit,
                topics=[topic],
                coordinator_epoch=coordinator_epoch,
            )
        ],
        max_version=_LAST_VERSION,
    )


def _ask(client: KafkaClient, leader: int, request: WriteTxnMarkersRequest, what: str) -> int:
    """Send the request and return the first error code of the response."""
    try:
        response = client.send(leader, request)
        written = [part for made in response.markers for topic in made.topics for part in topic.partitions]
        only_part(written, what)
    except UnansweredError as error:
        raise UnansweredError(f"{what}: {error.happened}", checked=error.checked, remedy=_CHECK_FIRST) from error
    except UnsupportedError as error:
        raise UnsupportedError(f"The brokers do not support {what}", checked=error.happened) from error
    return next((part.error_code for part in written if part.error_code != ErrorCode.NONE), ErrorCode.NONE)


def _error(code: int, what: str) -> EosKafkaError:
    happened = f"{what} was refused with {code_name(code)}"
    known = ErrorCode(code) if code in tuple(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    if known in _UNKNOWN_OUTCOME:
        return UnansweredError(f"{what} received no conclusive response: {code_name(code)}", remedy=_CHECK_FIRST)
    if known in _RIGHTS:
        return AuthorizationError(happened, remedy=_RIGHTS[known], error_code=code)
    if known is ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedError(f"The brokers do not support {what}", error_code=code)
    if known in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return TopicError(happened, error_code=code, remedy=HIDDEN_TOPIC)
    return BrokerError(happened, error_code=code)
