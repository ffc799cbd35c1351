"""The producers of many partitions (DescribeProducers, KIP-664), with a bound on the requests in flight to each broker.

Each request names up to 500 partitions of one broker, as many as Kafka's own tool. Metadata is requested again
for the partitions that a broker did not describe, because leaders move.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, counted
from spark_eos.client.error_table import code_name
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import ELECTION_MS, HIDDEN_TOPIC, MISSING_TOPIC_GRACE_SECONDS, grouped, leader_of
from spark_eos.client.offset_lookup import STALE_LEADER
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnsupportedError,
)
from spark_eos.runtime import Pending


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as a partition knows it; -1 means none, and `first_offset` belongs to an open transaction.

    `coordinator_epoch` comes from the last marker, so it is -1 before the first.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int

    @property
    def is_in_transaction(self) -> bool:
        return self.first_offset >= 0


# A broker processes the requests of one connection one by one; the second one waits there instead of on the network.
DEFAULT_MAX_IN_FLIGHT: Final = 2
# Called with the number of partitions that are done, and the number of all.
Report: TypeAlias = Callable[[int, int], None]

# Larger requests would keep a broker busy for long; Kafka's own tool uses the same size.
_MOST_AT_ONCE: Final = 500
_RECENT_SECONDS: Final = 5.0
_NO_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class _Sent(NamedTuple):
    """A request in flight."""

    node_id: int
    topic_partitions: tuple[TopicPartition, ...]
    request: DescribeProducersRequest
    pending: Pending


class _Trouble(NamedTuple):
    """Why a partition was not described; without a code, its broker did not respond."""

    text: str
    code: int = ErrorCode.NONE


@dataclass(slots=True)
class ProducerScan:
    """One scan of partitions; `unreadable` collects what no broker describes, instead of an error for the first.

    With a `broker_id`, that replica is queried instead of the leaders.
    """

    client: KafkaClient
    broker_id: int | None = None
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    report: Report | None = None
    unreadable: dict[TopicPartition, str] | None = None
    timeout_ms: float | None = None
    _found: dict[TopicPartition, list[ActiveProducer]] = field(default_factory=dict)
    _trouble: dict[TopicPartition, _Trouble] = field(default_factory=dict)

    def run(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[ActiveProducer]]:
        """Describe all producers of the partitions.

        Raises `TopicError`, `AuthorizationError`, `BrokerError` or `UnansweredError` for the first partition that is
        not described, and `UnsupportedError` for brokers before Kafka 2.8.
        """
        wanted = list(dict.fromkeys(topic_partitions))
        total = len(wanted)
        monotonic = self.client.runtime.clock.monotonic
        began, attempt = monotonic(), 0
        deadline = self.client.deadline(self.timeout_ms)
        while wanted:
            known = len(self._found)
            self._query_all(self._by_node(wanted, attempt), total)
            is_late = monotonic() - began > MISSING_TOPIC_GRACE_SECONDS
            wanted = [each for each in wanted if each not in self._found and not self._give_up(each, is_late)]
            if len(self._found) > known:
                deadline, attempt = self.client.deadline(self.timeout_ms), 0
            until = deadline if self.unreadable is None else min(deadline, began + ELECTION_MS / 1_000)
            if wanted and not self.client.back_off(attempt, until):
                for each in wanted:
                    self._fail(each)
                break
            attempt += 1
        return {each: self._found[each] for each in topic_partitions if each in self._found}

    def _by_node(
        self, wanted: Collection[TopicPartition], attempt: int
    ) -> dict[int, deque[tuple[TopicPartition, ...]]]:
        if self.broker_id is not None:
            by_node = {self.broker_id: list(wanted)}
        else:
            by_node = grouped((node_id, each) for each, node_id in self._leaders(wanted, attempt))
        return {
            node_id: deque(tuple(each[start : start + _MOST_AT_ONCE]) for start in range(0, len(each), _MOST_AT_ONCE))
            for node_id, each in by_node.items()
        }

    def _leaders(self, wanted: Collection[TopicPartition], attempt: int) -> Iterator[tuple[TopicPartition, int]]:
        topics = sorted({each.topic for each in wanted})
        earliest = self.client.runtime.clock.monotonic() - _RECENT_SECONDS
        # The caller has often just requested all topics, to find out which partitions there are.
        recent = self.client.recent.since(topics, earliest) if attempt == 0 else None
        found = self.client.metadata(topics) if recent is None else recent
        for each in wanted:
            leader, code = leader_of(found.get(each.topic), each.partition)
            if leader >= 0:
                yield each, leader
            else:
                self._trouble[each] = _Trouble(code_name(code), code)

    def _query_all(self, queues: Mapping[int, deque[tuple[TopicPartition, ...]]], total: int) -> None:
        in_flight: list[_Sent] = []
        while in_flight or any(queues.values()):
            for node_id, queue in queues.items():
                busy = sum(each.node_id == node_id for each in in_flight)
                for _ in range(min(len(queue), self.max_in_flight - busy)):
                    in_flight += self._send(node_id, queue.popleft())
            self.client.transport.wait_any([each.pending for each in in_flight], self.client.deadline(self.timeout_ms))
            # If none is done by the deadline, the outcome of each is an error.
            done = [each for each in in_flight if each.pending.is_done] or list(in_flight)
            for each in done:
                in_flight.remove(each)
                self._take(each)
            if self.report is not None:
                self.report(len(self._found), total)

    def _send(self, node_id: int, some: tuple[TopicPartition, ...]) -> list[_Sent]:
        request = _request(some)
        try:
            return [
                _Sent(
                    node_id, some, request, self.client.start(node_id, request, self.client.deadline(self.timeout_ms))
                )
            ]
        except UnansweredError as error:
            if self.broker_id is not None:
                raise
            self._trouble.update(dict.fromkeys(some, _Trouble(error.happened)))
            return []

    def _take(self, sent: _Sent) -> None:
        try:
            response = self.client.outcome(sent.pending, sent.request, sent.node_id)
        except UnansweredError as error:
            self._trouble.update(dict.fromkeys(sent.topic_partitions, _Trouble(error.happened)))
            return
        except UnsupportedError as error:
            raise UnsupportedError(
                f"Broker {sent.node_id} cannot describe the producers of a partition: Kafka 2.8 is the first that can",
                checked=error.happened,
                remedy="Upgrade the brokers to Kafka 3.0 or later, which can also list and describe transactions",
            ) from error
        self._trouble.update(dict.fromkeys(sent.topic_partitions, _Trouble("a response without the partition")))
        asked = set(sent.topic_partitions)
        for topic in response.topics:
            for partition in topic.partitions:
                each = TopicPartition(topic.name, partition.partition_index)
                if each not in asked:
                    continue
                if partition.error_code == ErrorCode.NONE:
                    self._found[each] = [_producer(state) for state in partition.active_producers]
                else:
                    self._trouble[each] = _Trouble(code_name(partition.error_code), partition.error_code)

    def _give_up(self, each: TopicPartition, is_late: bool) -> bool:
        code = self._trouble[each].code
        is_final = code != ErrorCode.NONE and code not in STALE_LEADER
        is_final |= is_late and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Waiting does not change which replica was requested.
        is_final |= self.broker_id is not None and code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_final:
            self._fail(each)
        return is_final

    def _fail(self, each: TopicPartition) -> None:
        trouble = self._trouble[each]
        if self.unreadable is None:
            raise _error(each, trouble, self.broker_id)
        self.unreadable[each] = trouble.text


def unreadable_text(unreadable: Mapping[TopicPartition, str]) -> str:
    """Describe the partitions that no broker described.

    >>> unreadable_text({TopicPartition("t", 0): "LEADER_NOT_AVAILABLE (5)", TopicPartition("t", 1): "no response"})
    'Not checked: t-0 (LEADER_NOT_AVAILABLE (5)) and 1 other partition.'
    """
    first = min(unreadable)
    rest = f" and {counted(len(unreadable) - 1, 'other partition')}" if len(unreadable) > 1 else ""
    return f"Not checked: {first} ({unreadable[first]}){rest}."


def _request(topic_partitions: Collection[TopicPartition]) -> DescribeProducersRequest:
    form, topics = DescribeProducersRequest.TopicRequest, grouped(topic_partitions)
    return DescribeProducersRequest(topics=[form(name=name, partition_indexes=each) for name, each in topics.items()])


def _producer(state: DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


def _error(each: TopicPartition, trouble: _Trouble, broker_id: int | None) -> EosKafkaError:
    what = f"DescribeProducers for {each}" + ("" if broker_id is None else f" to broker {broker_id}")
    if trouble.code == ErrorCode.NONE:
        return UnansweredError(
            f"{what} received no usable response", checked=f"Last response: {trouble.text}",
            remedy="Check that the brokers are running, and try again",
        )  # fmt: skip
    happened = f"{what} was refused with {trouble.text}"
    if trouble.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationError(happened, remedy="Grant the principal READ on the topic", error_code=trouble.code)
    if trouble.code in _NO_TOPIC:
        return TopicError(happened, error_code=trouble.code, remedy=HIDDEN_TOPIC)
    remedy = "Check that the partition has a leader, with kafka-topics.sh --describe"
    return BrokerError(happened, remedy=remedy if trouble.code in STALE_LEADER else "", error_code=trouble.code)
