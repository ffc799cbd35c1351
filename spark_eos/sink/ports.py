"""The interface to a Kafka cluster that tasks and commands call; what a driver asks of it is in `protocol.asks`."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.sink.performing import HasRuntime
from spark_eos.sink.protocol.answers import Description, KeyedRecord


class UnstableRest(NamedTuple):
    """The records of a partition that are after its last stable offset; `blocker` describes the oldest transaction."""

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    blocker: str


class SinkCluster(HasRuntime, Protocol):
    """The cluster: every method waits out retriable errors up to the client's time limits."""

    def transaction_version(self) -> int:
        """Return the finalized `transaction.version`."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Become the owner of an id; whatever it had open is aborted."""

    def own_some_of(
        self, transactional_ids: Iterator[str], count: int, timeout_ms: int
    ) -> Sequence[tuple[str, ProducerIdentity]]:
        """Become the owner of at least one of these ids, and of `count` if their coordinators respond at once.

        An id whose coordinator did not respond is given up.
        """

    def describe_transactions(
        self, transactional_ids: Collection[str], *, wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        """Describe ids; one the coordinator does not know is left out."""

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        """Look up the coordinators of these ids, and of the group, again before the next request."""

    def open_transactions(self, id_prefix: str, *, wait_ms: int | None = None) -> Sequence[str]:
        """List ids that begin with `id_prefix` and have an open transaction.

        Every broker must respond; with `wait_ms`, those that do not respond in that time are left out.
        """

    def all_records(self, topic: str, *, waits: bool = True) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        """Scan the committed records of a topic; raises `TopicError` if it does not exist.

        It reads up to the current end and waits for open transactions, or, without `waits`, up to the last stable
        offsets.
        """

    def unstable_rests(self, topic: str) -> Sequence[UnstableRest]:
        """Return the partitions of a topic that end in records of open transactions, and what blocks them."""

    def partition_counts(self, topics: Collection[str], *, micro_batch: Hashable | None = None) -> Mapping[str, int]:
        """Count the partitions of topics now, or as this process first counted them for a micro-batch."""

    def leaderless_partitions(self, topics: Collection[str]) -> Mapping[str, Collection[int]]:
        """Return the partitions that had no leader a moment ago; none if that cannot be determined quickly."""

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Return the batch size for a topic: as wanted, or smaller if its leaders have refused that."""
