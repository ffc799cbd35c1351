"""The offsets of a group: reads, and commits inside or outside a transaction."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.producer import AddOffsetsToTxnRequest, TxnOffsetCommitRequest, TxnOffsetCommitResponse

from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER_EPOCH, TopicPartition
from spark_eos.client.coordinator_requests import RESENT, CoordinatorRequest, ask_coordinator
from spark_eos.client.error_table import Api, classify, explained, failure, worst_code
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import FIRST_TV2_TXN_OFFSET_COMMIT, grouped
from spark_eos.client.response_reader import asked_part, whole_code
from spark_eos.client.transactions import TV2
from spark_eos.errors import UnansweredError
from spark_eos.open_transaction import OpenTransaction

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiRequest

_LAST_TV1_ADD_OFFSETS: Final = 4
_FIRST_OFFSET_FETCH_OF_ALL: Final = 2
_FIRST_GROUPED_OFFSET_FETCH: Final = 8
_LAST_OFFSET_FETCH_BY_NAME: Final = 9
_FIRST_STABLE_OFFSET_FETCH: Final = 7
_FIRST_OFFSET_COMMIT: Final = 2
_LAST_OFFSET_COMMIT_BY_NAME: Final = 9
NO_OFFSET: Final = -1
TopicT = TypeVar("TopicT")
_Committed: TypeAlias = OffsetCommitResponse | TxnOffsetCommitResponse
_Fetched: TypeAlias = OffsetFetchResponse | OffsetFetchResponse.OffsetFetchResponseGroup


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group committed for one partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


def add_offsets_to_txn(
    client: KafkaClient, identity: OpenTransaction, group_id: str, *, timeout_ms: float | None = None
) -> None:
    """Register the group's offsets partition with the transaction (TV1)."""
    make = partial(
        AddOffsetsToTxnRequest,
        transactional_id=identity.transactional_id,
        producer_id=identity.producer.producer_id,
        producer_epoch=identity.producer.producer_epoch,
        group_id=group_id,
        max_version=_LAST_TV1_ADD_OFFSETS,
    )
    exchange = CoordinatorRequest(Api.ADD_OFFSETS, identity.transactional_id, make)
    code = ask_coordinator(client, exchange, client.deadline(timeout_ms)).error_code
    if code != ErrorCode.NONE:
        raise failure(Api.ADD_OFFSETS, code, f"group {group_id!r} in {identity.transactional_id!r}")


def txn_offset_commit(
    client: KafkaClient,
    identity: OpenTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    timeout_ms: float | None = None,
) -> int:
    """Commit offsets that become visible when the transaction commits; on TV1 register the group first.

    Returns the node that accepted them: it was the group's coordinator at that time, which nothing else proves.
    """
    implicit = identity.transaction_version >= TV2
    if not implicit:
        add_offsets_to_txn(client, identity, group_id, timeout_ms=timeout_ms)
    topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    make = partial(
        TxnOffsetCommitRequest,
        transactional_id=identity.transactional_id,
        group_id=group_id,
        producer_id=identity.producer.producer_id,
        producer_epoch=identity.producer.producer_epoch,
        topics=_topics_to_commit(topic_class, topic_class.TxnOffsetCommitRequestPartition, offsets),
        min_version=FIRST_TV2_TXN_OFFSET_COMMIT if implicit else None,
        max_version=FIRST_TV2_TXN_OFFSET_COMMIT if implicit else FIRST_TV2_TXN_OFFSET_COMMIT - 1,
    )
    subject = f"group {group_id!r} in {identity.transactional_id!r}"
    return _commit(client, Api.TXN_OFFSET_COMMIT, group_id, make, offsets, subject, timeout_ms)


def commit_offsets(
    client: KafkaClient,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    timeout_ms: float | None = None,
) -> None:
    """Commit offsets at once, without being a member of the group; refused while consumers are active in it."""
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    make = partial(
        OffsetCommitRequest,
        group_id=group_id,
        topics=_topics_to_commit(topic_class, topic_class.OffsetCommitRequestPartition, offsets),
        min_version=_FIRST_OFFSET_COMMIT,
        max_version=_LAST_OFFSET_COMMIT_BY_NAME,
    )
    _commit(client, Api.OFFSET_COMMIT, group_id, make, offsets, f"group {group_id!r}", timeout_ms)


def _commit(
    client: KafkaClient,
    api: Api,
    group_id: str,
    make: "Callable[[], ApiRequest[_Committed]]",
    offsets: Collection[TopicPartition],
    subject: str,
    timeout_ms: float | None,
) -> int:
    """Commit with one kind of request or the other; return the node that accepted the offsets."""

    def code_of(response: _Committed) -> int:
        code = worst_code(api, [each.error_code for topic in response.topics for each in topic.partitions])
        return whole_code(code, offsets, _committed(response), f"{api.value} for group {group_id!r}")

    exchange = CoordinatorRequest(api, group_id, make, code_of)
    answer = ask_coordinator(client, exchange, client.deadline(timeout_ms))
    if answer.error_code != ErrorCode.NONE:
        raise failure(api, answer.error_code, subject)
    return answer.node_id


def fetch_offsets(
    client: KafkaClient,
    group_id: str,
    topic_partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = True,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read what a group committed (None: everything); partitions without a commit are absent from the result.

    `require_stable` waits until no transaction has pending offsets of these partitions (KIP-447). If that takes longer
    than the timeout, `UnansweredError` with UNSTABLE_OFFSET_COMMIT is raised. Without it pending offsets are ignored.
    Name the partitions if that matters: for a request for everything, brokers leave out a partition whose first offset
    is still pending, so "no offset yet" cannot be distinguished from "not committed".
    """
    named = None if topic_partitions is None else list(topic_partitions)

    def code_of(response: OffsetFetchResponse) -> int:
        group = _fetched(response, group_id)
        # A partition that is left out may have an offset.
        asked = [] if named is None or _is_unknown(group) else named
        return whole_code(_worst_fetch_code(group), asked, _committed(group), Api.OFFSET_FETCH.value)

    exchange = CoordinatorRequest(
        Api.OFFSET_FETCH, group_id, lambda: _fetch_request(group_id, named, require_stable), code_of
    )
    response = ask_coordinator(client, exchange, client.deadline(timeout_ms)).response
    found = _read_offsets(_fetched(response, group_id), group_id)
    return found if named is None else {tp: found[tp] for tp in named if tp in found}


def fetch_offsets_from(client: KafkaClient, node_id: int, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read everything a group committed from one broker, and from no other; ignore pending offsets.

    Raises `UnansweredError` if this broker gives no final response; the caller decides whether to ask another one.
    """
    group = _fetched(client.send(node_id, _fetch_request(group_id, None, False)), group_id)
    code = _worst_fetch_code(group)
    if classify(Api.OFFSET_FETCH, code) in RESENT:
        raise UnansweredError(
            f"Broker {node_id} did not return the committed offsets of group {group_id!r}",
            checked=explained(Api.OFFSET_FETCH, code),
            error_code=code,
        )
    return _read_offsets(group, group_id)


def _read_offsets(group: _Fetched, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    code = _worst_fetch_code(group)
    if code != ErrorCode.NONE:
        raise failure(Api.OFFSET_FETCH, code, f"group {group_id!r}")
    return {
        TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
            each.committed_offset, each.metadata or "", each.committed_leader_epoch
        )
        for topic in group.topics
        for each in topic.partitions
        if each.committed_offset != NO_OFFSET
    }


def _topics_to_commit(
    topic_class: Callable[..., TopicT],
    partition_class: Callable[..., object],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TopicT]:
    return [
        topic_class(
            name=topic,
            partitions=[
                partition_class(
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
                for partition, each in partitions
            ],
        )
        for topic, partitions in grouped((tp.topic, (tp.partition, each)) for tp, each in offsets.items()).items()
    ]


def _committed(response: _Committed | _Fetched) -> set[TopicPartition]:
    return {TopicPartition(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions}


def _fetch_request(
    group_id: str, topic_partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> OffsetFetchRequest:
    """Make a request with the group in both forms: the version decides which one is sent."""
    group_form = OffsetFetchRequest.OffsetFetchRequestGroup
    by_topic = None if topic_partitions is None else grouped(topic_partitions)
    topics = _named_topics(OffsetFetchRequest.OffsetFetchRequestTopic, by_topic)
    of_group = _named_topics(group_form.OffsetFetchRequestTopics, by_topic)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=[group_form(group_id=group_id, topics=of_group)],
        require_stable=require_stable,
        min_version=_FIRST_STABLE_OFFSET_FETCH if require_stable else _FIRST_OFFSET_FETCH_OF_ALL,
        max_version=_LAST_OFFSET_FETCH_BY_NAME,
    )


def _named_topics(form: Callable[..., TopicT], by_topic: Mapping[str, list[int]] | None) -> list[TopicT] | None:
    return None if by_topic is None else [form(name=name, partition_indexes=each) for name, each in by_topic.items()]


def _fetched(response: OffsetFetchResponse, group_id: str) -> _Fetched:
    return (
        asked_part(response.groups, lambda each: each.group_id == group_id, Api.OFFSET_FETCH.value)
        if (response.API_VERSION or 0) >= _FIRST_GROUPED_OFFSET_FETCH
        else response
    )


def _worst_fetch_code(group: _Fetched) -> int:
    if _is_unknown(group):
        return ErrorCode.NONE
    codes = [each.error_code for topic in group.topics for each in topic.partitions]
    return worst_code(Api.OFFSET_FETCH, [group.error_code or ErrorCode.NONE, *codes])


def _is_unknown(group: _Fetched) -> bool:
    """Return whether the coordinator has never heard of the group: Apache Kafka returns no offsets, others a code."""
    return bool(group.error_code == ErrorCode.GROUP_ID_NOT_FOUND)
