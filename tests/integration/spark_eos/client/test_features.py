"""The feature level changes under a running query (KIP-890): its next transaction uses the new level's protocol.

Tasks and driver of one query have a client each, as in separate processes, and the level changes at one point of a
micro-batch. Apache Kafka's documentation describes the same behavior of its own producers: a transaction ends with the
protocol it began with.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pytest
from kafka.protocol.broker_version_data import BrokerVersionData

from broker_core import Disconnect, EmbeddedBroker, Error
from broker_core.broker.request_log import RequestSeen
from spark_eos import failpoints
from spark_eos.client import metadata
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import end_txn
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction, SinkOptions
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import driver_id
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.state import QueryRun
from spark_eos.sink.task.identity_pool import IdentityPool
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.sink.task.writer import TaskWriter
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.brokers import finalize, running_broker
from tests.support.spark_eos.client_world import make_topic, read_values, unique

CHANGES = [(2, 1), (2, 0), (1, 2), (0, 2)]
# Before a transaction begins, before and between its produce requests, before and between the driver's steps, after the
# end.
POINTS = [
    "task.before_identity",
    "task.before_write",
    "task.mid_write",
    "task.flushed",
    "driver.before_verify",
    "driver.before_decide",
    "driver.decision_flushed",
    "driver.mid_decide",
    "driver.after_decide",
    "driver.after_complete",
]
# So large that the first row is sent before the second is consumed.
WIDE = "x" * 2_000
MAX_REQUEST_BYTES = 2_100

changes = pytest.mark.parametrize(("level", "later"), CHANGES, ids=[f"{a}-to-{b}" for a, b in CHANGES])


class Query:
    """The task and the driver of one query, each with a client of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.clock = AheadClock()
        runtime, servers = runtime_by(self.clock), tuple(address.split(","))
        self.task = KafkaClient(ClientOptions(servers, client_id="task"), runtime)
        self.driver = KafkaClient(ClientOptions(servers, client_id="driver"), runtime)
        self.topic = make_topic(self.task)
        self.decisions = make_topic(self.task, cleanup_policy="compact")
        self.name = unique("query")
        self.written: list[str] = []
        self._micro_batch = 0
        options = SinkOptions(
            self.task.options,
            topic=self.topic,
            prefix="p",
            transaction_timeout_ms=60_000,
            decision_topic=self.decisions,
            max_request_bytes=MAX_REQUEST_BYTES,
            buffer_bytes=4 * MAX_REQUEST_BYTES,
        )
        self._options = options
        self._cluster = KafkaCluster(self.task, self.decisions)
        self._pool = IdentityPool(self._cluster, "p", self.name, "run", "w")
        self.transaction = TaskTransaction(self.task, options)
        cluster = KafkaCluster(self.driver, self.decisions)
        self._committer = Committer(
            cluster,
            QueryRun(
                DecisionLog("p", self.name, self.decisions, run="run"), "p", self.name, "run", OnLostTransaction.FAIL
            ),
        )

    def write(self) -> Prepared:
        """Write two rows as a task, in two requests."""
        micro_batch = self._micro_batch
        rows = [f"{micro_batch}{half}{WIDE}" for half in "ab"]
        writer = TaskWriter(
            self._options,
            Place(self.name, "run", micro_batch, 0),
            self._cluster,
            self._pool,
            self.transaction,
            DecisionLog("p", self.name, self.decisions, run="run"),
        )
        message = writer.write(iter([pa.record_batch({"value": pa.array([row])}) for row in rows]))
        assert isinstance(message, Prepared)
        self.written += rows
        return message

    def run(self) -> int:
        """Write and commit a micro-batch; return the protocol version of its task's transaction."""
        message = self.write()
        self._committer.commit([message], self._micro_batch)
        self._micro_batch += 1
        return message.transaction.opened.transaction_version

    def visible(self) -> list[str]:
        return read_values(self.address, self.topic)[0]

    def close(self) -> None:
        self.task.close()
        self.driver.close()


MakeQuery: TypeAlias = Callable[..., tuple[EmbeddedBroker, Query]]
AtPoint: TypeAlias = Callable[[str, Callable[[], None]], None]


@pytest.fixture
def query_at() -> Iterator[MakeQuery]:
    opened: list[tuple[EmbeddedBroker, Query]] = []

    def make(level: int, brokers: int = 1) -> tuple[EmbeddedBroker, Query]:
        kafka = EmbeddedBroker(brokers=brokers, transaction_version=level).start()
        opened.append((kafka, Query(kafka.bootstrap_servers)))
        return opened[-1]

    yield make
    for kafka, query in opened:
        query.close()
        kafka.close()


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> AtPoint:
    """Call a function when a failpoint is next reached."""

    def arm(wanted: str, action: Callable[[], None]) -> None:
        def reach(point: str, micro_batch: int | None = None) -> None:
            if point == wanted:
                monkeypatch.setattr(failpoints, "reach", lambda point, micro_batch=None: None)
                action()

        monkeypatch.setattr(failpoints, "reach", reach)

    return arm


def requests_since(kafka: EmbeddedBroker, last: RequestSeen) -> list[RequestSeen]:
    """List the clients' requests after the given one."""
    seen = kafka.requests()
    return [each for each in seen[seen.index(last) + 1 :] if each.client_id]


def protocols(kafka: EmbeddedBroker, last: RequestSeen) -> set[str]:
    """Name the protocols of the requests that write and end transactions, as the broker received them."""
    latest = {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 5}
    seen = requests_since(kafka, last)
    found = {"V2" if each.version >= latest[each.api] else "V1" for each in seen if each.api in latest}
    return found | {"V1" for each in seen if each.api in ("AddPartitionsToTxn", "AddOffsetsToTxn")}


def protocol_of(level: int) -> set[str]:
    return {"V2" if level == 2 else "V1"}


@changes
def test_undetected_feature_level_change_is_harmless(level: int, later: int, query_at: MakeQuery) -> None:
    kafka, query = query_at(level)
    assert query.run() == level
    finalize(query.address, later)
    last = kafka.requests()[-1]
    assert [query.run(), query.run()] == [level, level]
    assert protocols(kafka, last) == protocol_of(level)
    query.clock.ahead_seconds += metadata.FEATURES_MAX_AGE_SECONDS
    last = kafka.requests()[-1]
    assert query.run() == later
    assert protocols(kafka, last) == protocol_of(later)
    assert query.visible() == query.written
    kafka.assert_quiescent(clients_may_wait=True)


@changes
def test_coordinator_moving_with_the_level_change_loses_and_duplicates_nothing(
    level: int, later: int, query_at: MakeQuery, at_point: AtPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At level 0 the state log has fewer fields of a transaction, and a new coordinator knows only these."""
    monkeypatch.setattr(metadata, "FEATURES_MAX_AGE_SECONDS", 0.0)
    kafka, query = query_at(level, brokers=2)
    assert query.run() == level

    def change() -> None:
        finalize(query.address, later)
        for name in (f"p.{query.name}.run.w.0", driver_id("p", query.name)):
            kafka.move_coordinator(3 - kafka.coordinator(transactional_id=name), transactional_id=name)

    for point in ("task.flushed", "driver.decision_flushed", "driver.after_decide", "driver.after_complete"):
        at_point(point, change)
        assert query.run() == level, point
        assert query.run() == later, point
        finalize(query.address, level)
        assert query.run() == level, point
    assert query.visible() == query.written
    kafka.assert_quiescent(clients_may_wait=True)


# Rules I.1/1 and I.1/3.
def test_both_brokers_serve_transactions_across_level_changes(
    broker_kind: str, at_point: AtPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "FEATURES_MAX_AGE_SECONDS", 0.0)
    with running_broker(broker_kind) as address:
        query = Query(address)
        level = query.run()
        for point in POINTS:
            for later in (1, 2):
                at_point(point, lambda later=later: finalize(address, later))  # type: ignore[misc]
                assert query.run() == (later if point == "task.before_identity" else level), point
                level = query.run()
                assert level == later, point
        # At level 0 Apache Kafka can only continue or end a transaction of the old protocol.
        for point in ("task.before_identity", "task.flushed", "driver.after_complete"):
            at_point(point, lambda: finalize(address, 0))
            assert query.run() == (0 if point == "task.before_identity" else 2), point
            assert query.run() == 0, point
            at_point(point, lambda: finalize(address, 2))
            assert query.run() == (2 if point == "task.before_identity" else 0), point
            assert query.run() == 2, point
        assert query.visible() == query.written
        query.close()


def test_requests_at_level_0_avoid_fields_apache_kafka_cannot_store(
    query_at: MakeQuery, at_point: AtPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator would refuse values of transactions V2, and every later request for that id."""
    monkeypatch.setattr(metadata, "FEATURES_MAX_AGE_SECONDS", 0.0)
    kafka, query = query_at(2)
    assert query.run() == 2

    def change() -> None:
        finalize(query.address, 0)
        for api, version in (("Produce", 12), ("Produce", 13), ("TxnOffsetCommit", 5), ("EndTxn", 5)):
            kafka.fault(api=api, version=version, action=Error("UNSUPPORTED_VERSION"))
        kafka.fault(
            api="InitProducerId", transactional_id=f"p.{query.name}.run.w.0", action=Error("UNSUPPORTED_VERSION")
        )

    at_point("task.flushed", change)
    assert [query.run(), query.run(), query.run()] == [2, 0, 0]
    assert query.visible() == query.written
    kafka.assert_quiescent(clients_may_wait=True)


@pytest.mark.parametrize(("level", "later", "version"), [(1, 2, 4), (2, 1, 5)])
def test_end_is_repeated_by_the_protocol_of_its_transaction(
    level: int, later: int, version: int, query_at: MakeQuery
) -> None:
    """Repeated by the other one, the end of a transaction that is committed looks like an error."""
    kafka, query = query_at(level)
    transaction = query.write().transaction.opened
    finalize(query.address, later)
    assert query.driver.transaction_version(refresh=True) == later
    with kafka.fault(api="EndTxn", when="after_apply", action=Disconnect(), times=1) as fault:
        assert end_txn(query.driver, transaction, commit=True).code == 0
    assert fault.hits == 1
    assert [each.version for each in kafka.requests() if each.api == "EndTxn"] == [version, version]
    assert query.visible() == query.written


@pytest.mark.parametrize("level", [0, 1, 2])
def test_steady_transactions_request_features_only_periodically(level: int, query_at: MakeQuery) -> None:
    kafka, query = query_at(level)
    query.clock.stand()
    query.run()

    last = kafka.requests()[-1]
    for _ in range(5):
        query.run()
    steady = [each.api for each in requests_since(kafka, last)]
    assert "ApiVersions" not in steady
    query.clock.ahead_seconds += metadata.FEATURES_MAX_AGE_SECONDS
    last = kafka.requests()[-1]
    for _ in range(5):
        query.run()
    seen = requests_since(kafka, last)
    assert sorted(each.client_id for each in seen if each.api == "ApiVersions") == ["driver", "task"]
    # On a busy broker a request may be sent twice, so the test compares kinds of requests. The client also asks for the
    # leaders again by then.
    assert {each.api for each in seen} == {*steady, "ApiVersions", "Metadata"}


def test_first_feature_level_is_learned_while_connecting() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        client.connect()
        last = kafka.requests()[-1]
        assert client.transaction_version() == 2
        assert requests_since(kafka, last) == []


def test_upgraded_broker_is_recognized(query_at: MakeQuery) -> None:
    """The first broker's versions once limited all later connections, which made transactions V2 impossible."""
    _, query = query_at(2)
    for client in (query.task, query.driver):
        client.connect()
        client.transport._manager.broker_version_data = BrokerVersionData((3, 0))
    assert [query.run(), query.run()] == [2, 2]
    assert query.visible() == query.written


@changes
def test_new_connection_updates_the_feature_level(level: int, later: int) -> None:
    with (
        EmbeddedBroker(transaction_version=level) as kafka,
        KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client,
    ):
        assert client.transaction_version() == level
        finalize(kafka.bootstrap_servers, later)
        assert client.transaction_version() == level
        client.transport.close_connection(1)
        client.require_topics([], timeout_ms=10_000)
        last = kafka.requests()[-1]
        assert client.transaction_version() == later
        assert requests_since(kafka, last) == []


@pytest.mark.parametrize(
    "code", ["INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", "TRANSACTION_ABORTABLE", "UNSUPPORTED_VERSION"]
)
def test_refused_transaction_makes_the_next_one_request_features(code: str, query_at: MakeQuery) -> None:
    kafka, query = query_at(2)
    assert query.run() == 2
    finalize(query.address, 1)
    kafka.fault(api="Produce", action=Error(code), times=1)
    with pytest.raises(Exception, match=code):
        query.write()
    assert query.run() == 1
    assert query.visible() == query.written


def test_broker_without_a_finalized_level_does_not_delay_transactions(
    query_at: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "FEATURES_MAX_AGE_SECONDS", 0.0)
    kafka, query = query_at(2)
    query.run()
    kafka.fault(api="ApiVersions", action=Disconnect(), times=1)
    assert query.run() == 2
    assert query.visible() == query.written
