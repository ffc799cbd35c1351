"""Every metric has the documented value, and changes at the documented moment and offset."""

import pytest

from broker_core.broker.apis import SERVED
from broker_core.broker.marker_writer import MarkerWriter
from broker_core.broker.meters import RECENT, Timing
from broker_core.broker.monitoring.metrics import Durations, take_metrics
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_codes
from tests.support.broker_core.metrics_watch import SETTINGS, Watch, begin, cluster, storage
from tests.support.broker_core.requests import (
    TOPIC,
    end_transaction,
    fetch,
    init_producer,
    offset_commit,
    produce,
    produced,
    records,
    transactional,
    waiting_produce,
)
from tests.support.broker_core.sasl_world import SaslClient, plain, secured_cluster
from tests.support.broker_core.transaction_world import T0, T1, World
from tests.support.direct import DirectClient, direct_cluster

__all__ = ["cluster", "storage"]

# The timestamp of all records in these tests.
WRITTEN_MS = 1_000
LATE_AFTER_MS = 900_000 + 300_000


@pytest.fixture
def client(cluster):
    return DirectClient(cluster)


@pytest.fixture
def watch(cluster):
    watch = cluster.meters.stopwatch = Watch()
    return watch


def metrics(cluster):
    return take_metrics(cluster, cluster.now_ms)


# Requests


def test_requests_are_counted_by_api_and_version(cluster, client):
    for version in (8, 9, 9):
        produced(client, records(1), version=version)
    produced(client, records(1))
    client.post(*produce(records(1), acks=0))
    assert metrics(cluster).requests("Produce").by_version == {8: 1, 9: 4}
    assert metrics(cluster).requests("Produce").count == 5
    assert metrics(cluster).requests("Fetch").count == 0


def test_errors_are_counted_by_code_without_successes(cluster, client):
    produced(client, records(1))
    assert metrics(cluster).requests("Produce").errors == {}
    for partition in (7, 8):
        assert produced(client, records(1), partition=partition).error_code == 3
    identity = init_producer(client)
    assert end_transaction(client, ProducerIdentity(identity.producer_id, 5), commit=True).error_code == 90
    observed = metrics(cluster)
    assert observed.requests("Produce").errors == {"UNKNOWN_TOPIC_OR_PARTITION": 2}
    assert observed.requests("EndTxn").errors == {"PRODUCER_FENCED": 1}


def test_request_time_ends_when_its_response_is_sent(cluster, client, watch):
    client.post(*fetch(0, max_wait_ms=1_000))
    assert client.take() is None
    assert metrics(cluster).requests("Fetch").count == 0, "the request is still waiting"
    watch.now_ms += 30.25
    produced(DirectClient(cluster), records(1))
    assert client.take() is not None
    latency = metrics(cluster).requests("Fetch").latency_ms
    assert (latency.count, latency.total_ms, latency.max_ms, latency.recent_ms) == (1, 30.25, 30.25, (30.25,))


def test_failed_authentication_is_counted_when_its_response_is_sent():
    cluster = secured_cluster()
    client = SaslClient(cluster)
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    assert metrics(cluster).requests("SaslAuthenticate").count == 0
    client.pass_time(100)
    observed = metrics(cluster).requests("SaslAuthenticate")
    assert (observed.count, observed.errors) == (1, {"SASL_AUTHENTICATION_FAILED": 1})


def test_request_of_a_closed_connection_is_not_counted(cluster, client):
    client.post(*fetch(0, max_wait_ms=1_000))
    client._connection.lost()
    cluster.advance(cluster.now_ms + 2_000)
    assert metrics(cluster).requests("Fetch").count == 0


def test_response_is_counted_before_it_is_sent(cluster, client, monkeypatch):
    seen = []
    monkeypatch.setattr(client, "send", lambda data: seen.append(metrics(cluster).requests("Produce").count))
    client.post(*produce(records(1)))
    assert seen == [1]


def test_quantiles_cover_the_most_recent_values():
    timing = Timing()
    for value in (9_999, *range(RECENT)):
        timing.add(float(value))
    durations = Durations(timing.count, timing.total_ms, timing.max_ms, tuple(sorted(timing.recent_ms)))
    assert (durations.count, durations.max_ms) == (RECENT + 1, 9_999)
    assert [durations.quantile(share) for share in (0, 0.5, 0.99, 1)] == [0, 511, 1013, 1023]
    assert durations.mean_ms == (9_999 + sum(range(RECENT))) / (RECENT + 1)
    assert (Durations().quantile(0.5), Durations().mean_ms) == (0, 0)


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_every_response_with_error_codes_is_inspected(api):
    for version in range(api.min_version, api.max_version + 1):
        response = filled(api.response, version)
        written = str(response.to_dict()).count("error_code': 3")
        assert len(list(error_codes(response, version))) == written
        assert written > 0, version


def filled(form, version):
    """Return a message with one item in each array and code 3 in each error field of the version."""
    values = {}
    for field in form._struct._fields:
        if not field.for_version_q(version):
            continue
        name = field.name
        if field.is_struct_array() or field.is_struct():
            inner = filled(inner_form(form, field), version)
            values[name] = [inner] if field.is_struct_array() else inner
        elif name.endswith("error_code"):
            values[name] = 3
    return form(**values)


def inner_form(form, field):
    return getattr(form, field.type_str.removeprefix("[]"))


# Partitions


# Rules C.7/5 and H.1/5.
def test_last_stable_offset_lag_reflects_an_open_transaction(cluster, client):
    produced(client, records(3))
    identity = begin(client)
    observed = metrics(cluster)
    assert (observed.last_stable_offset((TOPIC, 0)), observed.last_stable_offset_lag((TOPIC, 0))) == (3, 2)
    assert observed.partitions[TopicPartition(TOPIC, 0)].log_end_offset == 5
    end_transaction(client, identity, commit=True)
    observed = metrics(cluster)
    assert (observed.last_stable_offset((TOPIC, 0)), observed.last_stable_offset_lag((TOPIC, 0))) == (6, 0)


def test_every_partition_is_reported_and_none_is_created(cluster, storage):
    assert metrics(cluster).last_stable_offset_lag((TOPIC, 1)) == 0
    assert not storage.exists(f"{TOPIC}-1")
    with pytest.raises(KeyError):
        metrics(cluster).last_stable_offset_lag((TOPIC, 2))


def test_partition_never_requested_since_start_is_reported(client, storage, cluster):
    begin(client)
    cluster.close(cluster.now_ms)
    again = direct_cluster(storage, settings=SETTINGS)
    assert metrics(again).last_stable_offset_lag((TOPIC, 0)) == 2


def test_unreadable_partition_is_omitted_and_others_are_reported(cluster, client, storage, monkeypatch):
    begin(client, partitions=(0, 1))
    cluster.close(cluster.now_ms)
    again = direct_cluster(storage, settings=SETTINGS)
    get = again.logs.get

    def damaged(topic_partition, now_ms):
        if topic_partition == (TOPIC, 0):
            raise DamageError("corrupt")
        return get(topic_partition, now_ms)

    monkeypatch.setattr(again.logs, "get", damaged)
    observed = metrics(again)
    assert observed.last_stable_offset_lag((TOPIC, 1)) == 2
    assert TopicPartition(TOPIC, 0) not in observed.partitions


# Rules C.7/4 and H.1/1.
def test_transaction_is_late_five_minutes_after_the_maximum_timeout(cluster, client):
    identity = begin(client, partitions=(0, 1))
    late_ms = WRITTEN_MS + LATE_AFTER_MS
    assert take_metrics(cluster, late_ms).partitions_with_late_transactions == 0
    assert take_metrics(cluster, late_ms + 1).partitions_with_late_transactions == 2
    end_transaction(client, identity, commit=False)
    assert take_metrics(cluster, late_ms + 1).partitions_with_late_transactions == 0


# Rule C.7/4.
@pytest.mark.parametrize(("timestamp_ms", "late"), [(0, 0), (1, 1)])
def test_transaction_without_timestamps_is_never_late(cluster, client, timestamp_ms, late):
    identity = init_producer(client)
    batch = build_batch(
        [NewRecord(b"k", b"v", (), timestamp_ms)],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    assert produced(client, batch, transactional_id="id", version=12).error_code == 0
    assert take_metrics(cluster, 10**15).partitions_with_late_transactions == late


# Producers and transactional ids


# Rule H.1/2.
def test_producer_ids_are_counted_in_total_and_per_partition(cluster, client):
    assert (metrics(cluster).producer_ids, metrics(cluster).producer_id_count) == (frozenset(), 0)
    identity = begin(client, partitions=(0, 1))
    produced(client, records(1, producer_id=77, producer_epoch=0, base_sequence=0))
    assert metrics(cluster).producer_ids == {identity.producer_id, 77}
    assert metrics(cluster).producer_id_count == 3
    end_transaction(client, identity, commit=True)
    cluster.advance(cluster.now_ms + 2 * 86_400_000)
    assert metrics(cluster).producer_ids == set(), "the producers expire"


def test_transactional_ids_are_counted_by_state_until_they_expire(cluster, client):
    init_producer(client, "other")
    identity = begin(client)
    assert metrics(cluster).transactional_ids == {"Empty": 1, "Ongoing": 1}
    end_transaction(client, identity, commit=True)
    assert metrics(cluster).transactional_ids == {"Empty": 1, "CompleteCommit": 1}
    assert metrics(cluster).active_transactional_ids == 2
    cluster.advance(cluster.now_ms + 8 * 86_400_000)
    assert metrics(cluster).active_transactional_ids == 0


# Verification


# Rule H.1/4.
def test_refused_verification_counts_as_a_failure(cluster, client):
    identity = init_producer(client)
    for failures, version in enumerate((10, 11), 1):
        assert produced(client, transactional(identity, 2), transactional_id="id", version=version).error_code != 0
        assert metrics(cluster).verification_failures == failures
        assert metrics(cluster).verification_time_ms.count == failures


# Rule C.3 answer/1.
def test_verification_without_a_coordinator_is_explained_and_not_counted(cluster, client):
    identity = init_producer(client)
    cluster.controller.lose_leader(cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, "id"))
    answer = produced(client, transactional(identity, 2), transactional_id="id", version=11)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "Unable to verify the partition has been added to the transaction. Underlying error: COORDINATOR_NOT_AVAILABLE",
    )
    assert (metrics(cluster).verification_time_ms.count, metrics(cluster).verification_failures) == (0, 0)


def test_a_batch_that_is_not_in_the_transaction_is_refused_with_kafkas_message(cluster, client):
    answer = produced(client, transactional(init_producer(client), 2), transactional_id="id", version=10)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_TXN_STATE,
        "Partition was not added to the transaction",
    )


# Rule H.1/4.
def test_each_refused_partition_counts_as_a_failure(cluster, client):
    identity = init_producer(client)
    client.ask(*produce(*[transactional(identity, 2)] * 2, transactional_id="id", version=11))
    assert (metrics(cluster).verification_time_ms.count, metrics(cluster).verification_failures) == (1, 2)


def test_add_partitions_time_includes_the_durable_write(cluster, client, watch, monkeypatch):
    identity = init_producer(client)
    sync = cluster.logs.sync

    def slow_sync():
        if cluster.logs._promised:
            watch.now_ms += 7
        sync()

    monkeypatch.setattr(cluster.logs, "sync", slow_sync)
    assert produced(client, transactional(identity, 2), transactional_id="id", version=12).error_code == 0
    observed = metrics(cluster)
    assert (observed.verification_time_ms.recent_ms, observed.verification_failures) == ((7,), 0)
    # The transaction is open on the partition, so the broker does not ask the coordinator again.
    produced(client, transactional(identity, sequence=2), transactional_id="id", version=12)
    assert metrics(cluster).verification_time_ms.count == 1


# Rule H.1/3.
def test_each_retry_to_a_busy_coordinator_is_timed(cluster, client, monkeypatch):
    waiting_produce(client, monkeypatch)
    observed = metrics(cluster)
    # The coordinator added the first transaction and refused the second one with a retriable error.
    assert (observed.verification_time_ms.count, observed.verification_failures) == (2, 1)


def test_verification_of_transactional_offsets_is_measured(cluster, client):
    cluster.controller.ensure_topic(CONSUMER_OFFSETS_TOPIC)
    answer = client.ask(offset_commit(init_producer(client), 1), 4)
    assert answer.topics[0].partitions[0].error_code != 0
    assert (metrics(cluster).verification_time_ms.count, metrics(cluster).verification_failures) == (1, 1)


# Coordinators


# Rule H.1/6.
def test_load_time_is_measured_per_coordinator(client, storage, cluster, watch):
    watch.step_ms = 2.0
    cluster.controller.move_leader(TopicPartition(TRANSACTION_STATE_TOPIC, 0), 1)
    watch.step_ms = 4.0
    cluster.controller.move_leader(TopicPartition(TRANSACTION_STATE_TOPIC, 1), 1)
    observed = metrics(cluster).transaction_load_time_ms
    # Three come from the creation of the topic, during which the stopwatch did not advance.
    assert (observed.count, observed.max_ms, observed.mean_ms) == (5, 4.0, 6.0 / 5)
    assert metrics(cluster).group_load_time_ms.count == 0


# Rule H.1/7.
def test_marker_for_an_unknown_partition_is_counted_as_waiting(cluster, client, monkeypatch):
    identity = begin(client, partitions=(0, 1))
    deleting = DirectClient(cluster)

    def deliver_too_late(*order):
        monkeypatch.undo()
        cluster.controller.delete_topic(TOPIC)
        MarkerWriter.deliver(*order)

    monkeypatch.setattr(MarkerWriter, "deliver", deliver_too_late)
    assert metrics(cluster).unknown_destination_queue_size == 0
    end_transaction(deleting, identity, commit=True)
    assert metrics(cluster).unknown_destination_queue_size == 2
    cluster.advance(cluster.now_ms + 50)
    assert metrics(cluster).unknown_destination_queue_size == 0
    assert metrics(cluster).transactional_ids == {"CompleteCommit": 1}


def test_waiting_marker_for_a_known_partition_has_a_destination(cluster, client, monkeypatch):
    identity = begin(client)
    monkeypatch.setattr(
        "broker_core.broker.marker_writer.append_marker", lambda *_, **__: ErrorCode.NOT_ENOUGH_REPLICAS
    )
    end_transaction(client, identity, commit=True)
    assert metrics(cluster).unknown_destination_queue_size == 0
    assert [each.markers for each in backlogs(cluster)] == [(TopicPartition(TOPIC, 0),)]


def backlogs(cluster):
    return [broker.transactions.completion.backlog() for broker in cluster.brokers.values()]


def test_abandoned_completion_is_not_counted():
    world = World()
    world.add(identity := world.identity(), T0, T1)
    world.end(identity)
    (order,) = world.coordinator.completion.take()
    answers = {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, T1: ErrorCode.INVALID_PRODUCER_EPOCH}
    world.coordinator.completion.answered(order, answers, world.now_ms)
    assert world.coordinator.completion.backlog() == ((), 0)


# Rule H.1/8.
def test_completion_queue_size_is_reported(cluster, client, monkeypatch):
    identity = begin(client)
    writer = cluster.brokers[1].transactions.store
    write = type(writer).write

    def refused(self, entry, verdict, now_ms, **options):
        if verdict.next_state.name.startswith("COMPLETE"):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ordered by the test")
        return write(self, entry, verdict, now_ms, **options)

    monkeypatch.setattr(type(writer), "write", refused)
    end_transaction(client, identity, commit=True)
    assert metrics(cluster).log_append_retry_queue_size == 1
    monkeypatch.undo()
    cluster.advance(cluster.now_ms + 50)
    assert metrics(cluster).log_append_retry_queue_size == 0
