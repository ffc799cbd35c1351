"""Faults occur where, when and as often as configured, and a request that meets one ends as specified."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core import Delay, Drop, EmbeddedBroker, Error, Hold
from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.broker_core.fault_steps import ID, begun
from tests.support.messages import filled, offsets_request
from tests.support.raw_client import RawClient


@pytest.fixture
def kafka():
    with EmbeddedBroker(brokers=2, topics={"in": 2}, config={"transaction.state.log.num.partitions": "1"}) as kafka:
        yield kafka


@pytest.fixture
def client(kafka):
    """Connect to the only broker, which leads and coordinates everything in these tests."""
    for partition in (0, 1):
        kafka.move_leader(("in", partition), 1)
    kafka.move_coordinator(1, transactional_id=ID)
    with RawClient(kafka.bootstrap_servers) as client:
        yield client


def metadata(client):
    return client.send(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="in")]), 9)


def test_refused_request_is_not_matched_after_apply(kafka, client):
    end = begun(client)
    fault = kafka.fault(api="EndTxn", when="after_apply", action=Error("NOT_COORDINATOR"), times=1)
    end.producer_epoch += 7
    assert client.send(end, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert fault.hits == 0
    end.producer_epoch -= 7
    assert client.send(end, 5).error_code == ErrorCode.NOT_COORDINATOR


def test_change_is_durable_before_the_after_fault(kafka, client):
    end = begun(client)
    kafka.fault(api="EndTxn", when="after_apply", times=1, action=lambda _: kafka.crash())
    client.post(end, 5)
    kafka.wait_for(lambda: not kafka.broker(1).is_running)
    kafka.restart()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit", timeout=5)


def test_delayed_request_takes_effect_after_its_client_disconnects(kafka, client):
    end = begun(client)
    fault = kafka.fault(api="EndTxn", action=Delay(0.05))
    client.post(end, 5)
    kafka.wait_for(lambda: fault.hits)
    client.close()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")


def test_action_function_receives_the_request_and_may_use_the_broker(kafka, client):
    seen_in_callback = []
    kafka.fault(
        api="Metadata", topic="in", action=lambda seen: seen_in_callback.append((seen.api, kafka.leader(("in", 0))))
    )
    assert metadata(client).topics[0].error_code == 0
    assert seen_in_callback == [("Metadata", 1)]


def _refuse(seen):
    raise AssertionError(f"{seen.api} was not expected")


def test_block_ends_with_what_the_function_raised(kafka, client):
    def ask():
        client.post(m.MetadataRequest(topics=[]), 9)
        assert client.is_closed_by_peer()

    with pytest.raises(AssertionError, match="Metadata was not expected"), kafka.fault(api="Metadata", action=_refuse):
        ask()
    assert kafka.topics == {"in": 2}


def _meet(kafka, *faults):
    """Ask once for each fault, and wait until its function has ended."""
    for _ in faults:
        with RawClient(kafka.bootstrap_servers) as client:
            client.post(m.MetadataRequest(topics=[]), 9)
            assert client.is_closed_by_peer()
    assert all(fault.hits for fault in faults)


def test_block_ends_with_its_own_error_before_that_of_the_function(kafka):
    with pytest.raises(KeyError) as raised, kafka.fault(api="Metadata", action=_refuse) as fault:
        _meet(kafka, fault)
        raise KeyError
    [note] = raised.value.__notes__
    assert "function of <fault Metadata before" in note and "AssertionError('Metadata was not expected')" in note
    fault.remove()


def test_broker_closes_with_what_a_function_raised():
    kafka = EmbeddedBroker()
    with pytest.raises(AssertionError, match="Metadata was not expected") as raised, kafka:
        _meet(kafka, *[kafka.fault(api="Metadata", action=each, times=1) for each in (_refuse, sys.exit)])
    [note] = raised.value.__notes__
    assert "raised SystemExit(" in note, "the error of the second fault"
    kafka.close()


def test_block_of_the_broker_ends_with_its_own_error():
    with pytest.raises(KeyError) as raised, EmbeddedBroker() as kafka:
        _meet(kafka, kafka.fault(api="Metadata", action=_refuse))
        raise KeyError
    [note] = raised.value.__notes__
    assert "Metadata was not expected" in note


@pytest.mark.parametrize("when", ["before", "after_apply"])
def test_broker_closes_with_what_a_function_raised_after_its_block(when):
    called, may_go = threading.Event(), threading.Event()

    def refuse(seen):
        called.set()
        assert may_go.wait(30)
        _refuse(seen)

    kafka = EmbeddedBroker()
    with pytest.raises(AssertionError, match="Metadata was not expected"), kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            with kafka.fault(api="Metadata", when=when, action=refuse):
                client.post(m.MetadataRequest(topics=[]), 9)
                assert called.wait(30)
            may_go.set()
            assert client.is_closed_by_peer()
    kafka.close()


def test_function_that_returns_an_awaitable_has_failed(kafka):
    with pytest.raises(TypeError, match="action=.* returned an awaitable, which is never awaited"):
        with kafka.fault(api="Metadata", action=lambda seen: _later(seen)) as fault:
            _meet(kafka, fault)


# Between prepare and the markers


def test_fault_between_prepare_and_markers_leaves_no_marker(kafka, client):
    may_go = threading.Event()
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", transactional_id=ID, action=Hold(may_go))
    assert client.send(end, 5).error_code == 0
    assert kafka.transaction(ID).state == "PrepareCommit"
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [1, 1]
    may_go.set()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    kafka.assert_quiescent(clients_may_wait=True)


def test_fault_between_two_markers_leaves_one_written(kafka, client):
    may_go = threading.Event()
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", partition=1, action=Hold(may_go))
    assert client.send(end, 5).error_code == 0
    kafka.wait_for(lambda: kafka.partition("in", 0).last_stable_offset == 2)
    assert kafka.partition("in", 1).last_stable_offset == 0
    with pytest.raises(AssertionError, match=r"'t' is PrepareCommit.*in-1 has LSO 0 below HW 1"):
        kafka.assert_quiescent()
    may_go.set()
    kafka.wait_for(lambda: kafka.partition("in", 1).last_stable_offset == 2)


def test_crash_between_two_markers_is_completed_by_recovery(kafka, client):
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", partition=1, times=1, action=lambda _: kafka.crash())
    client.post(end, 5)
    client.is_closed_by_peer()
    kafka.wait_for(lambda: not kafka.broker(1).is_running)
    kafka.restart()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [3, 2], (
        "the first partition gets a second marker, as from a restarted coordinator of Kafka"
    )


def test_coordinator_that_crashes_midway_is_replaced(kafka, client):
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", times=1, action=lambda _: kafka.broker(1).crash())
    client.post(end, 5)
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert kafka.transaction(ID).coordinator == 2
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [2, 2], (
        "a dead coordinator writes no further marker"
    )


def test_lost_marker_is_retried_after_the_coordinator_backoff(kafka, client):
    end = begun(client)
    fault = kafka.fault(when="mid", action=Drop(), times=2)
    assert client.send(end, 5).error_code == 0
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert fault.hits == 2


# Matching


@pytest.mark.parametrize(
    ("matcher", "matches"),
    [
        ({"version": 9}, True),
        ({"version": 8}, False),
        ({"client_id": "raw-client"}, True),
        ({"client_id": "x"}, False),
        ({"principal": "ANONYMOUS"}, True),
        ({"principal": "User:ANONYMOUS"}, True),
        ({"principal": "alice"}, False),
        ({"broker": 1}, True),
        ({"broker": 2}, False),
        ({"topic": "in"}, True),
        ({"topic": "out"}, False),
        ({"api": None, "group": "g"}, False),
        ({"api": None, "transactional_id": "t"}, False),
        ({"api": "Produce"}, False),
        ({}, True),
    ],
)
def test_fault_applies_to_matching_requests_only(kafka, client, matcher, matches):
    with kafka.fault(**{"api": "Metadata"} | matcher, action=Error("LEADER_NOT_AVAILABLE")) as fault:
        code = metadata(client).topics[0].error_code
    assert (code == ErrorCode.LEADER_NOT_AVAILABLE, fault.hits) == (matches, matches)
    assert metadata(client).topics[0].error_code == 0, "the fault ends with its block"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [({"times": 2}, [5, 5, 0, 0]), ({"nth": 2}, [0, 5, 0, 0]), ({"nth": 2, "times": 2}, [0, 5, 5, 0]), ({}, [5] * 4)],
)
def test_fault_applies_the_given_number_of_times(kafka, client, counts, expected):
    kafka.fault(api="Metadata", action=Error(5), **counts)
    assert [metadata(client).topics[0].error_code for _ in range(4)] == expected


def test_fault_matches_group_and_partition(kafka, client):
    kafka.fault(api="FindCoordinator", group="g", action=Error("NOT_COORDINATOR"))
    kafka.fault(api="ListOffsets", topic="in", partition=1, action=Error("NOT_LEADER_OR_FOLLOWER"))
    assert client.send(m.FindCoordinatorRequest(key="g"), 3).error_code == ErrorCode.NOT_COORDINATOR
    assert client.send(m.FindCoordinatorRequest(key="h"), 3).error_code == 0
    for partition, code in ((0, 0), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        answer = client.send(offsets_request("in", partitions=[partition]), 5)
        assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", [12, 17])
def test_fault_matches_the_topics_of_a_fetch_session(kafka, client, version):
    """A consumer that waits names no partition again (KIP-227)."""
    topic_id = kafka._call(lambda cluster: cluster.metadata.topic("in").topic_id)

    def fetch(session_id, epoch, *, forgets=False):
        partition = {"partition": 1, "partition_max_bytes": 1000}
        topic = {"topic": "in", "topic_id": topic_id}
        request = filled(
            m.FetchRequest,
            max_bytes=1000,
            session_id=session_id,
            session_epoch=epoch,
            topics=[] if epoch else [topic | {"partitions": [partition]}],
            forgotten_topics_data=[topic | {"partitions": [1]}] if forgets else [],
            rack_id="",
        )
        return client.send(request, version)

    session_id = fetch(0, 0).session_id
    with kafka.fault(api="Fetch", topic="in", partition=1, action=Error("KAFKA_STORAGE_ERROR")) as fault:
        assert fetch(session_id, 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fault.hits == 1
        assert fetch(session_id, 1, forgets=True).error_code == 0
        assert fetch(session_id, 2).error_code == 0
    with kafka.fault(api="Fetch", topic="in", partition=0, action=Error("KAFKA_STORAGE_ERROR")):
        assert fetch(fetch(0, 0).session_id, 1).error_code == 0


async def _later(_):
    pass


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"api": "EndTransaction"}, "EndTransaction.*EndTxn"),
        ({"when": "later"}, "before, after_apply, mid"),
        ({"when": "mid", "api": "Fetch"}, "Fetch has only one phase"),
        ({"when": "mid", "client_id": "c"}, "are sent by no client"),
        ({"nth": 0}, "count from 1"),
        ({"times": 0}, "count from 1"),
        ({"action": 3}, "expected Error, Delay"),
        ({"action": _later}, "is a coroutine function"),
        ({"version": 99}, "any API is served in versions 0 to"),
        ({"api": "Produce", "version": 2}, "version=2: Produce is served in versions 3 to"),
        ({"api": "Produce", "group": "g"}, "no Produce request names group; .* partition, topic, transactional_id"),
        ({"api": "Heartbeat", "topic": "in"}, "no Heartbeat request names topic; possible are group"),
        ({"api": "Metadata", "topic": "in", "partition": 0}, "names partition and topic; possible are topic"),
        ({"api": "ApiVersions", "topic": "in"}, "possible are none of these"),
        ({"api": "FindCoordinator", "version": 0, "transactional_id": "t"}, "of version 0 names transactional_id"),
        ({"version": 4, "group": "g", "partition": 0, "api": "AddOffsetsToTxn"}, "names group and partition"),
        ({"partition": -1}, "partition=-1"),
    ],
)
def test_fault_that_can_never_match_is_refused(kafka, wrong, message):
    with pytest.raises(ValueError, match=message):
        kafka.fault(**{"action": Drop()} | wrong)


def test_fault_for_what_this_version_of_kafka_does_not_serve_is_refused():
    with EmbeddedBroker(kafka_version="3.7") as kafka:
        with pytest.raises(ValueError, match="ShareFetch.*not served"):
            kafka.fault(api="ShareFetch", action=Drop())
        with pytest.raises(ValueError, match="version=13: Produce is served in versions 3 to 10"):
            kafka.fault(api="Produce", version=13, action=Drop())


@pytest.mark.parametrize(
    ("code", "message"), [("COORDINATOR_AWAY", "'COORDINATOR_AWAY'"), ("NONE", "is no error"), (0, "no error")]
)
def test_what_is_no_error_is_refused(code, message):
    with pytest.raises(ValueError, match=message):
        Error(code)


# The log of requests


def test_request_log_shows_client_request_and_result(kafka, client):
    end = begun(client, (0, 1))
    end.producer_epoch = 77
    assert client.send(end, 5).error_code == ErrorCode.PRODUCER_FENCED
    produced, ended = kafka.requests(api="Produce")[-1], kafka.requests(api="EndTxn", transactional_id=ID)[-1]
    assert (produced.version, produced.client_id, produced.principal, produced.broker) == (
        12,
        "raw-client",
        "User:ANONYMOUS",
        1,
    )
    assert {str(each) for each in produced.partitions} == {"in-0", "in-1"}
    assert (produced.outcome, produced.error_codes) == ("answered", ())
    assert ended.error_codes == (ErrorCode.PRODUCER_FENCED,)
    assert "EndTxn v5" in str(ended) and "transactional_id=t" in str(ended) and "PRODUCER_FENCED" in str(ended)


def test_request_log_names_topics_that_are_deleted_afterwards(kafka, client):
    """Newer requests name topics by id, and the log reads a request when it is looked at."""
    topic_id = kafka._call(lambda cluster: cluster.metadata.topic("in").topic_id)
    partition = m.FetchRequest.FetchTopic.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1000)
    named = m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0, "session_epoch": -1, "rack_id": ""}
    client.send(m.FetchRequest(topics=[named], forgotten_topics_data=[], **fields), 17)
    kafka.delete_topic("in")
    assert {str(each) for each in kafka.requests(api="Fetch")[-1].partitions} == {"in-1"}


def test_request_log_keeps_the_newest_requests():
    with EmbeddedBroker(requests_kept=3, topics={"in": 1}) as kafka, RawClient(kafka.bootstrap_servers) as client:
        for version in (5, 6, 7, 8, 9):
            client.send(m.MetadataRequest(topics=[]), version)
        assert [seen.version for seen in kafka.requests()] == [7, 8, 9]


def test_faults_of_several_threads_are_all_injected_and_removed():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with EmbeddedBroker() as kafka, ThreadPoolExecutor(4) as pool:

            def inject(number):
                for _ in range(50):
                    kafka.fault(api="Heartbeat", action=Drop(), group=f"gone {number}").remove()
                return kafka.fault(api="Heartbeat", action=Drop(), group=f"kept {number}")

            kept = set(pool.map(inject, range(40)))
            assert set(kafka._server.fault_injector.faults) == kept
    finally:
        sys.setswitchinterval(before)
