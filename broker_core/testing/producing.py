"""Writing of records by requests, as a producer does: batches by partition, with or without a transaction."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

from kafka.partitioner.default import murmur2

from broker_core.broker.cluster import Cluster
from broker_core.broker.partitions import check_topic_name
from broker_core.errors import ErrorCode, KafkaError
from broker_core.records.batch import Headers, NewRecord, build_batch
from broker_core.server.clock import monotonic_s
from broker_core.testing.local_client import LocalClient
from broker_core.testing.pausing import pause
from broker_core.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTION_STATE_TOPIC,
    ProducerIdentity,
    TopicPartition,
)
from broker_core.wire import messages as m


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's producer computes it.

    >>> partition_of_key(b"42", 4)
    0
    """
    return (int(murmur2(key)) & 0x7FFFFFFF) % partitions


P = ParamSpec("P")
T = TypeVar("T")

End = Literal["commit", "abort", "open"]
Text = str | bytes | None

# The transactional id for `transactional=True`.
DEFAULT_TRANSACTIONAL_ID = "broker_core.produce"
_ENDS = ("commit", "abort", "open")
_PATIENCE_S = 30
# A batch is not larger than half of what the topic allows, and small enough that other clients are not delayed.
_BATCH_BYTES = 512 * 1024
_RECORD_OVERHEAD_BYTES = 40
_RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # The leader or the coordinator has moved since it was looked up.
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
)
_MAX_TIMESTAMP_MS = 2**63 - 1


class ProducerRecord(NamedTuple):
    """A record to be written with `EmbeddedBroker.produce`; a plain tuple of the same order has the same meaning.

    Text is encoded as UTF-8, and None is null. `headers` are a mapping or a list of pairs. Without `timestamp_ms` the
    broker's time is used, and without `partition` Kafka's default partitioner.
    """

    key: Text = None
    value: Text = None
    headers: Mapping[str, Text] | Iterable[tuple[str, Text]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """The place of a record that was written."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


# A record, and its index in the caller's list.
_Placed = tuple[int, NewRecord]
Values = Text | ProducerRecord | Iterable[Text | ProducerRecord | tuple[Any, ...]]


class _Session(NamedTuple):
    """A transaction of the producer: its id, its identity, and whether it follows KIP-890, part 2."""

    transactional_id: str
    identity: ProducerIdentity
    is_v2: bool


def _retried(ask: Callable[P, T]) -> Callable[P, T]:
    """Repeat a request while the previous transaction ends, and after a move of the leader or the coordinator."""

    def repeat(*arguments: P.args, **named: P.kwargs) -> T:
        end = monotonic_s() + _PATIENCE_S
        while True:
            try:
                return ask(*arguments, **named)
            except KafkaError as error:
                if error.code not in _RETRIABLE or monotonic_s() > end:
                    raise
            pause(0.005)

    return repeat


class LocalProducer:
    """A producer that writes through a `LocalClient`; `call` runs a function in the brokers' thread."""

    def __init__(self, client: LocalClient, call: Callable[[Callable[[Cluster], Any]], Any]) -> None:
        self._client = client
        self._call = call
        # Where the records without a key of the next call go, by topic.
        self._next_partition: dict[str, int] = {}
        # By transactional id: a thread would fence the transaction that another one is writing.
        self._writing: dict[str, threading.Lock] = {}

    def produce(
        self, topic: str, values: Values, transactional: str | bool | None, end: End, partition: int | None
    ) -> list[RecordMetadata]:
        """Write records, and return their places in the order of `values`."""
        if not isinstance(topic, str):
            raise TypeError(f"the topic is {topic!r}; expected its name as str")
        if end not in _ENDS:
            raise ValueError(f"end={end!r}: expected one of {', '.join(_ENDS)}")
        if end != "commit" and not transactional:
            raise ValueError(f"end={end!r} needs a transaction: pass transactional=True or a transactional id")
        if transactional == "":
            raise ValueError("transactional='': a transactional id is not empty; pass None to write no transaction")
        transactional_id = DEFAULT_TRANSACTIONAL_ID if transactional is True else transactional or None
        records = [_record(index, each, partition) for index, each in enumerate(_items(values))]
        count = self._partitions(topic)
        placed = self._placed(topic, records, count)
        if transactional_id is None:
            return self._write(topic, placed, None)
        if not isinstance(transactional_id, str):
            raise TypeError(f"transactional={transactional!r}; expected True or a transactional id as str")
        with self._writing.setdefault(transactional_id, threading.Lock()):
            session = self._begin(transactional_id)
            try:
                written = self._write(topic, placed, session)
            except BaseException:
                self._end(session, commit=False)
                raise
            # The coordinator refuses to end a transaction without partitions, as clients know.
            if end != "open" and records:
                self._end(session, commit=end == "commit")
            return written

    def end_transaction(self, transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> None:
        self._end(_Session(transactional_id, identity, self._is_v2()), commit=commit)

    def _partitions(self, topic: str) -> int:
        """Return the topic's number of partitions; create it like a client's first request, if that is enabled."""
        wanted = m.MetadataRequest.MetadataRequestTopic(name=topic)
        broker_id = self._call(lambda cluster: min(cluster.controller.addresses, default=None))
        if broker_id is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is running: start one first")
        request = m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)
        response = self._client.send(broker_id, request, 9)
        (found,) = response.topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} does not exist and auto.create.topics.enable is false: "
                f"call create_topic({topic!r}) first",
            )
        if found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            check_topic_name(topic)
        _check(found.error_code, f"topic {topic!r}")
        return len(found.partitions)

    def _placed(self, topic: str, records: list[tuple[NewRecord, int | None]], count: int) -> dict[int, list[_Placed]]:
        turn = self._next_partition.get(topic, 0) % count
        placed: dict[int, list[_Placed]] = {}
        for index, (record, partition) in enumerate(records):
            if partition is None and record.key is not None:
                partition = partition_of_key(record.key, count)
            elif partition is None:
                partition = turn
                self._next_partition[topic] = turn + 1
            elif not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"record {index} is for partition {partition}; topic {topic!r} has {count}, from 0",
                )
            placed.setdefault(partition, []).append((index, record))
        return placed

    def _write(self, topic: str, placed: dict[int, list[_Placed]], session: _Session | None) -> list[RecordMetadata]:
        found: dict[int, RecordMetadata] = {}
        if session is not None and not session.is_v2 and placed:
            self._add_partitions(session, topic, sorted(placed))
        limit = self._call(lambda cluster: cluster.logs.topic_config(cluster.metadata.topic(topic)).max_message_bytes)
        now_ms = self._call(lambda cluster: cluster.now_ms)
        for partition, records in sorted(placed.items()):
            sequence = 0 if session is not None else NO_SEQUENCE
            for batch in _batches(records, min(_BATCH_BYTES, limit // 2)):
                stamped = [
                    record if record.timestamp_ms != NO_TIMESTAMP else record._replace(timestamp_ms=now_ms)
                    for _, record in batch
                ]
                offset, time_ms = self._append(TopicPartition(topic, partition), stamped, sequence, session)
                for at, ((index, _), record) in enumerate(zip(batch, stamped, strict=True), offset):
                    its_ms = record.timestamp_ms if time_ms == NO_TIMESTAMP else time_ms
                    found[index] = RecordMetadata(topic, partition, at, its_ms)
                sequence += 0 if session is None else len(batch)
        return [found[index] for index in sorted(found)]

    @_retried
    def _append(
        self, place: TopicPartition, records: list[NewRecord], sequence: int, session: _Session | None
    ) -> tuple[int, int]:
        """Write one batch; return its base offset and, with log append time, its timestamp."""
        identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if session is None else session.identity
        batch = build_batch(
            records,
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            is_transactional=session is not None,
        )
        form = m.ProduceRequest.TopicProduceData
        data = form(name=place.topic, partition_data=[form.PartitionProduceData(index=place.partition, records=batch)])
        request = m.ProduceRequest(
            transactional_id=None if session is None else session.transactional_id,
            acks=-1,
            timeout_ms=_PATIENCE_S * 1000,
            topic_data=[data],
        )
        leader = self._call(lambda cluster: cluster.metadata.leadership(place).leader)
        if leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader")
        response = self._client.send(leader, request, 12 if session is not None and session.is_v2 else 11)
        ((answer,),) = (each.partition_responses for each in response.responses)
        reasons = "; ".join(each.batch_index_error_message or "" for each in answer.record_errors)
        _check(answer.error_code, f"{place}: {answer.error_message or reasons or 'the batch was refused'}")
        return answer.base_offset, answer.log_append_time_ms

    # Transactions

    @_retried
    def _begin(self, transactional_id: str) -> _Session:
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
        answer = self._client.send(self._coordinator(transactional_id), request, 4)
        _check(answer.error_code, f"InitProducerId of {transactional_id!r}")
        return _Session(transactional_id, ProducerIdentity(answer.producer_id, answer.producer_epoch), self._is_v2())

    @_retried
    def _add_partitions(self, session: _Session, topic: str, partitions: list[int]) -> None:
        form = m.AddPartitionsToTxnRequest
        request = form(
            v3_and_below_transactional_id=session.transactional_id,
            v3_and_below_producer_id=session.identity.producer_id,
            v3_and_below_producer_epoch=session.identity.producer_epoch,
            v3_and_below_topics=[form.AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
        )
        answer = self._client.send(self._coordinator(session.transactional_id), request, 3)
        for each in answer.results_by_topic_v3_and_below[0].results_by_partition:
            _check(each.partition_error_code, f"AddPartitionsToTxn of {topic}-{each.partition_index}")

    @_retried
    def _end(self, session: _Session, *, commit: bool) -> None:
        request = m.EndTxnRequest(
            transactional_id=session.transactional_id,
            producer_id=session.identity.producer_id,
            producer_epoch=session.identity.producer_epoch,
            committed=commit,
        )
        answer = self._client.send(self._coordinator(session.transactional_id), request, 5 if session.is_v2 else 4)
        _check(answer.error_code, f"EndTxn of {session.transactional_id!r}")

    def _coordinator(self, transactional_id: str) -> int:
        def find(cluster: Cluster) -> int | None:
            place = cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, transactional_id)
            broker = cluster.controller.leader_of(place)
            return None if broker is None else broker.broker_id

        found: int | None = self._call(find)
        if found is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"transactional id {transactional_id!r} has no coordinator"
            )
        return found

    def _is_v2(self) -> bool:
        return bool(self._call(lambda cluster: cluster.metadata.transaction_version >= 2))


def _check(code: int, what: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), what)


def _items(values: Values) -> Iterable[Any]:
    if isinstance(values, str | bytes | bytearray | memoryview | ProducerRecord) or values is None:
        return [values]
    if hasattr(values, "itertuples"):
        raise TypeError(
            f"the values are a {type(values).__name__}, which iterates over the names of its columns; write "
            "frame['value'], or frame[['key', 'value']].itertuples(index=False)"
        )
    if isinstance(values, tuple):
        raise TypeError("the values are a tuple; write [(key, value)] for one record, or a list of values")
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"the values are {type(values).__name__}; expected a value or a list of values or tuples")
    return values


def _record(index: int, item: Any, partition: int | None) -> tuple[NewRecord, int | None]:
    if isinstance(item, tuple):
        if not 2 <= len(item) <= len(ProducerRecord._fields):
            raise TypeError(
                f"record {index} is a tuple of {len(item)}; expected (key, value), optionally followed by headers, "
                "timestamp_ms and partition"
            )
        sent = ProducerRecord(*item)
    else:
        sent = ProducerRecord(value=item)
    timestamp_ms = NO_TIMESTAMP if sent.timestamp_ms is None else sent.timestamp_ms
    if not _is_int(timestamp_ms) or not NO_TIMESTAMP <= timestamp_ms <= _MAX_TIMESTAMP_MS:
        raise TypeError(f"record {index}: timestamp {timestamp_ms!r}; expected milliseconds since the epoch as int")
    wanted = partition if sent.partition is None else sent.partition
    if wanted is not None and not _is_int(wanted):
        raise TypeError(f"record {index}: partition {wanted!r}; expected an int")
    return (
        NewRecord(
            _encoded(index, "key", sent.key),
            _encoded(index, "value", sent.value),
            _headers(index, sent.headers),
            int(timestamp_ms),
        ),
        None if wanted is None else int(wanted),
    )


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _headers(index: int, headers: Any) -> Headers:
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        raise TypeError(f"record {index}: headers {headers!r}; expected a mapping or a list of pairs") from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise TypeError(f"record {index}: the name of a header is {name!r}; expected str")
        _utf8(index, "name of a header", name)
    return tuple((name, _encoded(index, f"header {name!r}", value)) for name, value in pairs)


def _encoded(index: int, what: str, data: Any) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return _utf8(index, what, data)
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"record {index}: the {what} is {type(data).__name__}; expected bytes, str or None: serialize it first, "
        "for example with json.dumps"
    )


def _utf8(index: int, what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"record {index}: the {what} is not text in UTF-8 ({error}): correct it") from None


def _batches(records: list[_Placed], limit_bytes: int) -> Iterator[list[_Placed]]:
    batch: list[_Placed] = []
    size = 0
    for each in records:
        key, value, headers, _ = each[1]
        its_size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        its_size += sum(len(name) * 4 + len(data or b"") + 10 for name, data in headers)
        if batch and size + its_size > limit_bytes:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += its_size
    if batch:
        yield batch
