"""The methods of `EmbeddedBroker` for records, groups and snapshots, and the lists of records that they return."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, TypeVar, overload
from uuid import UUID

from broker_core.broker.cluster import Cluster
from broker_core.broker.monitoring.inspection import RecordView, record_views
from broker_core.errors import ErrorCode, KafkaError, MissingExtraError
from broker_core.testing.files import Columns, records_of
from broker_core.testing.groups import Group, group_ids
from broker_core.testing.inspection_controls import InspectionControls
from broker_core.testing.pausing import wait_until
from broker_core.testing.producing import DEFAULT_TRANSACTIONAL_ID, End, LocalProducer, RecordMetadata, Values
from broker_core.testing.snapshots import Snapshot, restore, take
from broker_core.types import (
    IsolationLevel,
    ProducerIdentity,
    TopicPartition,
    at_once,
    check_number,
    check_text,
    check_whole,
    counted,
)

if TYPE_CHECKING:
    import pandas
    import pyarrow


class RecordList(list[RecordView]):
    """Records in the order of their partitions and offsets, as `EmbeddedBroker.records` returns them.

    >>> from broker_core import EmbeddedBroker
    >>> with EmbeddedBroker() as kafka:
    ...     _ = kafka.produce("orders", [("42", "one"), ("42", None)])
    ...     kafka.records("orders").values, kafka.records("orders")[0].key
    ([b'one', None], b'42')
    """

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> RecordView: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> RecordView | Self:
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(found, list) else found

    @property
    def values(self) -> list[bytes | None]:
        """The values of the records."""
        return [each.value for each in self]

    @property
    def keys(self) -> list[bytes | None]:
        """The keys of the records."""
        return [each.key for each in self]

    def dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each record: topic, partition, offset, timestamp_ms, key, value and headers.

        The headers are a list of pairs, because a name may occur several times.
        """
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "timestamp_ms": each.timestamp_ms,
                "key": each.key,
                "value": each.value,
                "headers": list(each.headers),
            }
            for each in self
        ]

    def to_arrow(self) -> "pyarrow.Table":
        """Return an Arrow table with the columns of Spark's Kafka source, except timestampType.

        They are key, value, topic, partition, offset, timestamp (in UTC) and headers. Raises ImportError without
        pyarrow.
        """
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise MissingExtraError("pyarrow", "arrow") from error
        header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
        columns = {
            "key": (pyarrow.binary(), self.keys),
            "value": (pyarrow.binary(), self.values),
            "topic": (pyarrow.string(), [each.topic for each in self]),
            "partition": (pyarrow.int32(), [each.partition for each in self]),
            "offset": (pyarrow.int64(), [each.offset for each in self]),
            "timestamp": (pyarrow.timestamp("ms", "UTC"), [each.timestamp_ms for each in self]),
            "headers": (
                pyarrow.list_(header),
                [[{"key": name, "value": value} for name, value in each.headers] for each in self],
            ),
        }
        return pyarrow.table({name: pyarrow.array(data, kind) for name, (kind, data) in columns.items()})

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas frame with the columns of `to_arrow`; raises ImportError without pandas and pyarrow."""
        return self.to_arrow().to_pandas()


T = TypeVar("T")

Isolation = Literal["read_committed", "read_uncommitted"]

_ISOLATION = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}


class DataControls(InspectionControls):
    """The methods of `EmbeddedBroker` for records, groups and snapshots."""

    _producer: LocalProducer

    # Writing

    def produce(
        self,
        topic: str,
        values: Values,
        *,
        transactional: str | bool | None = None,
        end: End = "commit",
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Write records without a Kafka client, and return their places in the same order.

        The batches pass the same checks as a client's. Faults do not match these requests, `requests` does not
        list them, and access control lists do not apply to them. The topic is created if the broker creates topics
        automatically.

        >>> with EmbeddedBroker(topics={"orders": 2}) as kafka:
        ...     _ = kafka.produce("orders", [b"one", "two"])
        ...     _ = kafka.produce("orders", [("alice", "three", {"trace": b"x"})], transactional=True)
        ...     kafka.records("orders", isolation="read_committed").values
        [b'one', b'two', b'three']

        Args:
            topic: The name of the topic.
            values: A value (bytes, str or None), or a list of values, of tuples (key, value, headers, timestamp_ms,
                partition), of which the last three may be left out, or of `ProducerRecord`.
            transactional: Write in one transaction: a transactional id, or True for an id of this method. As with any
                producer, an open transaction of the id is aborted first, and its producer is fenced. Calls of several
                threads with one id write one transaction after the other.
            end: How the transaction ends: "commit", "abort", or "open" to leave it to `end_transaction` or its timeout
                of a minute.
            partition: The partition of records that do not name one. Without it, records with a key go where Kafka's
                default partitioner (murmur2) puts them. The records without a key of one call go to one partition, and
                those of the next call to the next.

        Raises:
            KafkaError: The broker refuses a batch, for example with MESSAGE_TOO_LARGE, or the topic does not exist and
                is not created automatically. Without a transaction, batches before it stay written.
            TypeError: A value, key or header is neither bytes, str nor None.
        """
        return self._producer.produce(topic, values, transactional, end, partition)

    def load(
        self,
        topic: str,
        path: str | os.PathLike[str],
        *,
        key: str | None = None,
        value: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        transactional: str | bool | None = None,
    ) -> list[RecordMetadata]:
        """Write a record for each row of a file: .jsonl and .ndjson (JSON lines), .csv or .parquet (needs pyarrow).

        >>> with EmbeddedBroker() as kafka:
        ...     with open("orders.jsonl", "w") as file:
        ...         _ = file.write('{"id": 7, "item": "tea"}')
        ...     _ = kafka.load("orders", "orders.jsonl", key="id")
        ...     [(each.key, each.value) for each in kafka.records("orders")]
        [(b'7', b'{"id": 7, "item": "tea"}')]

        Args:
            topic: The name of the topic.
            path: The file. The first line of a CSV file has the names of the columns.
            key: The column with the keys; by default records have none. Text and bytes are taken as they are, null is
                null, and other types become JSON.
            value: The column with the values, likewise; by default the value is the whole row as JSON.
            headers: The column with the headers: a mapping, a list of pairs, or either of them as JSON text.
            timestamp: The column with the timestamps: milliseconds since the epoch, or ISO 8601, in UTC if it has no
                zone.
            partition: The column with the partitions.
            transactional: As for `produce`.

        Raises ValueError that names the row for content that cannot be used; nothing is written then.
        """
        records = records_of(Path(path), Columns(key, value, headers, timestamp, partition))
        return self.produce(topic, records, transactional=transactional)

    def end_transaction(self, transactional_id: str | Literal[True], *, commit: bool = True) -> None:
        """Commit or abort the open transaction of a transactional id, in the name of its producer.

        True is the id of `produce(..., transactional=True)`.

        >>> with EmbeddedBroker() as kafka:
        ...     _ = kafka.produce("orders", "one", transactional="writer", end="open")
        ...     kafka.end_transaction("writer")
        ...     kafka.records("orders", isolation="read_committed").values
        [b'one']

        Raises KeyError when no coordinator knows the id, and `KafkaError` with INVALID_TXN_STATE if nothing is open.
        """
        if transactional_id is True:
            transactional_id = DEFAULT_TRANSACTIONAL_ID
        view = self.transaction(transactional_id)
        if view.state != "Ongoing":
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of {transactional_id!r} is {view.state}, not Ongoing"
            )
        identity = ProducerIdentity(view.producer_id, view.producer_epoch)
        self._producer.end_transaction(transactional_id, identity, commit=commit)

    # Reading

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
    ) -> RecordList:
        """Return the records of a topic or of one of its partitions, ordered by partition and offset.

        They are what a consumer of that isolation level gets: "read_uncommitted" includes the records of open and
        aborted transactions. With `control` the control records among them are returned too, such as the markers that
        end transactions. The list has `values`, `keys`, `dicts()`, `to_arrow()` and `to_pandas()`.

        >>> with EmbeddedBroker() as kafka:
        ...     _ = kafka.produce("orders", ["one"], transactional="writer")
        ...     kafka.records("orders").values, kafka.records("orders", control=True)[1].marker
        ([b'one'], 'COMMIT')

        Raises `KafkaError` for an unknown topic or partition, and ValueError for another isolation level.
        """
        check_text("topic", topic)
        partition = _checked_partition(partition)
        level = _level(isolation)

        return self._call(lambda cluster: _read(cluster, topic, partition, level, control=control))

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        isolation: Isolation = "read_committed",
        timeout: float = 10,
    ) -> RecordList:
        """Wait until a topic has at least `count` records, and return all of them.

        The topic may be created meanwhile, also again. Raises AssertionError after `timeout` seconds, with the number
        of records that are there.

        >>> with EmbeddedBroker() as kafka:
        ...     _ = kafka.produce("orders", ["one", "two"])
        ...     len(kafka.wait_for_records("orders", 2))
        2
        """
        check_text("topic", topic)
        partition = _checked_partition(partition)
        check_number("count", count)
        check_number("timeout", timeout)
        level = _level(isolation)
        seen: _Bounds | None = None
        found = RecordList()

        def look() -> RecordList:
            nonlocal found, seen
            found, seen = self._call(lambda cluster: _newer(cluster, topic, partition, level, found, seen))
            return found

        def why(found: RecordList) -> str:
            text = f"topic {topic!r} has {counted(len(found), 'record')} of {count} ({isolation}) after {timeout} s"
            if seen is None:
                return f"{text}; it does not exist"
            return text + self._why_hidden(topic, partition, level, len(found))

        return wait_until(look, lambda found: len(found) >= count and seen is not None, timeout, why)

    def _why_hidden(self, topic: str, partition: int | None, level: IsolationLevel, visible: int) -> str:
        """Return how many records a reader of read_uncommitted would see besides; empty if none."""
        if level is not IsolationLevel.READ_COMMITTED:
            return ""
        hidden = len(self.records(topic, partition, isolation="read_uncommitted")) - visible
        return f"; {counted(hidden, 'more record')} of open or aborted transactions" if hidden else ""

    @property
    def groups(self) -> list[str]:
        """The ids of all groups, sorted."""
        return self._call(group_ids)

    def group(self, group_id: str) -> Group:
        """Return a consumer group, with its members, committed offsets and lag; it need not exist yet."""
        check_text("group_id", group_id)
        if not group_id:
            raise ValueError("the id of a group cannot be empty")
        return Group(group_id, self._call)

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Return what the cluster has stored at this moment: topics, records, transactions, offsets, users and ACLs."""
        with self._thread.changing():
            return self._thread.act(take)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of this or another broker, in milliseconds; clients stay connected.

        Topics, records, transactions and committed offsets are those of the snapshot. Groups have no members
        afterwards: consumers that are still open join again and go on from the restored offsets. Partitions have no
        sequence numbers of idempotent producers, so that open ones go on. Faults, the request log, the clock, and which
        brokers run stay as they are; metrics count from 0. The page "Snapshots" of the documentation describes what
        clients see.

        >>> with EmbeddedBroker() as kafka:
        ...     _ = kafka.produce("orders", ["one"])
        ...     snapshot = kafka.snapshot()
        ...     _ = kafka.produce("orders", ["two"])
        ...     kafka.restore(snapshot)
        ...     kafka.records("orders").values
        [b'one']

        Raises RuntimeError in the function of a fault, and if all brokers have crashed; `ConfigError` for a snapshot of
        a newer version of Kafka than the `kafka_version` of this broker.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"the snapshot is {snapshot!r}; expected a Snapshot, as `Snapshot.read` makes of a folder")
        if self._thread.is_here:
            raise RuntimeError("the function of a fault cannot restore a snapshot: its request is in progress")
        with self._thread.changing():
            self._thread.act(lambda server: restore(server, snapshot))

    @staticmethod
    def wait_for(condition: Callable[[], T], timeout: float = 10) -> T:
        """Call `condition` until its result is true, and return the result; AssertionError after `timeout` seconds.

        >>> with EmbeddedBroker() as kafka:
        ...     kafka.wait_for(lambda: kafka.broker(1).is_running)
        True
        """
        if not callable(condition):
            raise TypeError(f"the condition is {condition!r}; expected a function, such as `lambda: kafka.topics`")
        check_number("timeout", timeout)
        return wait_until(
            # Otherwise an awaitable would always be true.
            lambda: at_once(
                condition(),
                "the condition returns an awaitable; await `wait_for` of broker_core.aio, which awaits it",
            ),
            bool,
            timeout,
            lambda found: f"condition not met within {timeout} s (last value: {found!r})",
        )


def _checked_partition(partition: object) -> int | None:
    return None if partition is None else check_whole("partition", partition)


def _level(isolation: str) -> IsolationLevel:
    if isolation not in _ISOLATION:
        raise ValueError(f"isolation={isolation!r}: expected {' or '.join(_ISOLATION)}")
    return _ISOLATION[isolation]


def _places(cluster: Cluster, topic: str, partition: int | None) -> list[TopicPartition]:
    return cluster.metadata.topic(topic).topic_partitions() if partition is None else [TopicPartition(topic, partition)]


def _read(
    cluster: Cluster, topic: str, partition: int | None, level: IsolationLevel, *, control: bool = False
) -> RecordList:
    places = _places(cluster, topic, partition)
    return RecordList(record for place in places for record in record_views(cluster, place, level, control=control))


# The id of a topic, and the offsets at which each partition begins and ends for a reader.
_Bounds = tuple[UUID, list[tuple[int, int]]]


def _newer(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    level: IsolationLevel,
    found: RecordList,
    seen: _Bounds | None,
) -> tuple[RecordList, _Bounds | None]:
    """Return the records of a topic and its bounds, None if there is no such topic; its log is read if they differ."""
    if topic not in cluster.metadata.topics:
        return RecordList(), None
    logs = [cluster.logs.get(place, cluster.now_ms) for place in _places(cluster, topic, partition)]
    bounds = cluster.metadata.topics[topic].topic_id, [(log.log_start_offset, log.bound(level)) for log in logs]
    return (found, seen) if bounds == seen else (_read(cluster, topic, partition, level), bounds)
