"""An administrator's view of producers and transactions, and the end of what hangs (KIP-664).

kafka-python's admin client has these calls too, and is not used. Its `list_transactions` fails for a state that only a
newer broker knows, its `describe_transactions` as a whole for one unknown id, its `describe_producers` as a whole for
one partition, and its `abort_transaction` cannot commit. Its `find_hanging_transactions` lists what coordinators know
to be old: a transaction hangs if no coordinator knows it.
"""

from collections.abc import Collection
from typing import Final

from kafka.protocol.admin import ListTransactionsRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.error_table import code_name, known_code
from spark_eos.client.inspection import FIRST_DURATION_VERSION, FIRST_PATTERN_VERSION, unused_name
from spark_eos.client.kafka_client import KafkaClient, answers_to_compare
from spark_eos.client.metadata import HIDDEN_TOPIC, WAITED_FOR, Doubt, leader_of, metadata_request, topics_of
from spark_eos.client.response_reader import asked_part
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
    ErrorCode.LISTENER_NOT_FOUND,
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
_RECENT_MS: Final = 5_000
_CHECK_FIRST: Final = "Check with describe-producers or list before you try again"


def _marker_request(
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


def _send_marker(
    client: KafkaClient, leader: int, request: WriteTxnMarkersRequest, topic_partition: TopicPartition, what: str
) -> int:
    try:
        response = client.send(leader, request)
        [asked] = request.markers
        written = asked_part(response.markers, lambda each: each.producer_id == asked.producer_id, what)
        topic = asked_part(written.topics, lambda each: each.name == topic_partition.topic, what)
        part = asked_part(topic.partitions, lambda each: each.partition_index == topic_partition.partition, what)
    except UnansweredError as error:
        raise UnansweredError(f"{what}: {error.happened}", checked=error.checked, remedy=_CHECK_FIRST) from error
    except UnsupportedError as error:
        raise UnsupportedError(f"The brokers do not support {what}", checked=error.happened) from error
    return part.error_code


def _marker_error(code: int, what: str) -> EosKafkaError:
    happened = f"{what} was refused with {code_name(code)}"
    known = known_code(code)
    if known in _UNKNOWN_OUTCOME:
        return UnansweredError(f"{what} received no conclusive response: {code_name(code)}", remedy=_CHECK_FIRST)
    if known in _RIGHTS:
        return AuthorizationError(happened, remedy=_RIGHTS[known], error_code=code)
    if known is ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedError(f"The brokers do not support {what}", error_code=code)
    if known in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return TopicError(happened, error_code=code, remedy=HIDDEN_TOPIC)
    return BrokerError(happened, error_code=code)


def all_topics(client: KafkaClient) -> list[str]:
    """List all topics, the internal ones included: offsets of groups hang as records do (KAFKA-13288).

    Nothing in a response shows that its broker lags behind, so the lists of other brokers complete it.
    """
    found = set(client.metadata(None))
    for answer in answers_to_compare(client, lambda: metadata_request(None)):
        found |= client.recent.note(topics_of(answer), client.runtime.clock.monotonic()).keys()
    return sorted(found)


def sees_every_topic(client: KafkaClient) -> bool:
    """Return whether the principal may DESCRIBE every topic, by describing one that does not exist.

    Brokers silently leave out of a list of all topics what the principal may not see.
    """
    nobodys = unused_name(client)
    topic = client.metadata([nobodys]).get(nobodys)
    return topic is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED


def broker_ids(client: KafkaClient) -> list[int]:
    client.metadata([])
    return sorted(broker.node_id for broker in client.brokers())


def partitions_of(client: KafkaClient, topics: Collection[str], broker_id: int | None = None) -> list[TopicPartition]:
    """List the partitions of topics that exist; of a broker, the partitions of its replicas."""
    if not topics:
        return []
    # `all_topics` has usually just requested all of them.
    recent = client.require_topics(topics, need_leaders=False, max_age_ms=_RECENT_MS).values()
    return [
        TopicPartition(topic.name, number)
        for topic in recent
        for number, partition in topic.partitions.items()
        if broker_id is None or broker_id in partition.replicas
    ]


def replicas_of(client: KafkaClient, topic: str, partition: int | None) -> list[int]:
    """List the brokers with a replica of a partition, or of any of a topic; none of a partition that is unknown."""
    found = client.require_topics([topic], need_leaders=False)[topic].partitions
    wanted = found if partition is None else found.keys() & {partition}
    return sorted({broker for number in wanted for broker in found[number].replicas})


def require_filters(client: KafkaClient, duration_ms: int | None, id_pattern: str | None) -> None:
    """Raise `UnsupportedError` if the brokers ignore one of the given filters of ListTransactions."""
    for what, value, version, kafka in (
        ("duration", duration_ms, FIRST_DURATION_VERSION, "3.8"),
        ("pattern", id_pattern, FIRST_PATTERN_VERSION, "4.1"),
    ):
        try:
            if value is not None:
                client.api_version(ListTransactionsRequest, min_version=version)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"The brokers cannot filter transactions by {what}: Kafka {kafka} is the first that does",
                checked=error.happened,
                remedy="List all transactions and filter the output",
            ) from error


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
    epoch. Raises `UnansweredError` then, and `TopicError`, `AuthorizationError`, `UnsupportedError` or `BrokerError`
    if the broker refuses.
    """
    what = f"WriteTxnMarkers for {topic_partition}"
    topic, missing, code = topic_partition.topic, Doubt(client.runtime.clock.monotonic), int(ErrorCode.NONE)
    for _ in client.attempts(client.deadline()):
        leader, code = leader_of(client.metadata([topic]).get(topic), topic_partition.partition)
        if leader >= 0:
            request = _marker_request(topic_partition, producer_id, producer_epoch, coordinator_epoch, commit)
            code = _send_marker(client, leader, request, topic_partition, what)
        if code == ErrorCode.NONE:
            return
        if code not in _RETRIED or (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not missing.lasts()):
            break
    raise _marker_error(code, what)
