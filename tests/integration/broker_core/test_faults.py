"""Faults strike where, when and as often as they were asked to, and a request they met ends as they say."""

import threading

import pytest

from broker_core import Delay, Disconnect, Drop, EmbeddedBroker, Error, Hold
from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.broker_core.fault_steps import ID, begun
from tests.support.raw_client import RawClient


@pytest.fixture
def kafka():
    with EmbeddedBroker(brokers=2, topics={"in": 2}, config={"transaction.state.log.num.partitions": "1"}) as kafka:
        yield kafka


@pytest.fixture
def client(kafka):
    """Connect to the one broker that leads and coordinates all that the tests touch."""
    for partition in (0, 1):
        kafka.move_leader(("in", partition), 1)
    kafka.move_coordinator(1, transactional_id=ID)
    with RawClient(kafka.bootstrap_servers) as client:
        yield client


def metadata(client):
    return client.send(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="in")]), 9)


def test_an_error_before_leaves_the_state_alone(kafka, client):
    end = begun(client)
    with kafka.fault(api="EndTxn", transactional_id=ID, action=Error("COORDINATOR_NOT_AVAILABLE"), times=1) as fault:
        assert client.send(end, 5).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert kafka.transaction(ID).state == "Ongoing"
        assert fault.hits == 1
        assert client.send(end, 5).error_code == 0
    assert kafka.transaction(ID).state == "CompleteCommit"


def test_an_error_after_hides_what_took_effect(kafka, client):
    end = begun(client)
    kafka.fault(api="EndTxn", when="after_apply", action=Error("NOT_COORDINATOR"), times=1)
    assert client.send(end, 5).error_code == ErrorCode.NOT_COORDINATOR
    assert kafka.transaction(ID).state == "CompleteCommit"
    assert kafka.partition("in", 0).last_stable_offset == 2


def test_a_refusal_has_not_taken_effect_and_is_not_struck_after(kafka, client):
    end = begun(client)
    fault = kafka.fault(api="EndTxn", when="after_apply", action=Error("NOT_COORDINATOR"), times=1)
    end.producer_epoch += 7
    assert client.send(end, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert fault.hits == 0
    end.producer_epoch -= 7
    assert client.send(end, 5).error_code == ErrorCode.NOT_COORDINATOR


def test_what_a_fault_meets_afterwards_is_durable_already(kafka, client):
    end = begun(client)
    kafka.fault(api="EndTxn", when="after_apply", times=1, action=lambda _: kafka.crash())
    client.post(end, 5)
    kafka.wait_for(lambda: not kafka.broker(1).is_running)
    kafka.restart()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit", timeout=5)


@pytest.mark.parametrize(("when", "state"), [("before", "Ongoing"), ("after_apply", "CompleteCommit")])
def test_a_disconnect_closes_the_connection_before_or_after(kafka, client, when, state):
    end = begun(client)
    kafka.fault(api="EndTxn", when=when, action=Disconnect())
    client.post(end, 5)
    assert client.is_closed_by_peer()
    assert kafka.transaction(ID).state == state


def test_a_dropped_answer_is_never_sent_and_the_client_is_left_waiting(kafka, client):
    end = begun(client)
    kafka.fault(api="EndTxn", when="after_apply", action=Drop())
    client.post(end, 5)
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert [seen.outcome for seen in kafka.requests(api="EndTxn")] == ["dropped by a fault"]
    with RawClient(kafka.bootstrap_servers) as other:
        assert metadata(other).topics[0].error_code == 0


def test_what_is_held_goes_on_when_it_may(kafka, client):
    may_go = threading.Event()
    end = begun(client)
    fault = kafka.fault(api="EndTxn", action=Hold(may_go))
    client.post(end, 5)
    kafka.wait_for(lambda: fault.hits)
    assert kafka.transaction(ID).state == "Ongoing"
    may_go.set()
    assert client.collect(end).error_code == 0


def test_a_delayed_request_takes_effect_though_its_sender_is_gone(kafka, client):
    end = begun(client)
    fault = kafka.fault(api="EndTxn", action=Delay(0.05))
    client.post(end, 5)
    kafka.wait_for(lambda: fault.hits)
    client.close()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")


def test_a_function_is_told_of_the_request_and_may_use_the_broker(kafka, client):
    told = []
    kafka.fault(api="Metadata", topic="in", action=lambda seen: told.append((seen.api, kafka.leader(("in", 0)))))
    assert metadata(client).topics[0].error_code == 0
    assert told == [("Metadata", 1)]


# Between prepare and the markers


def test_in_the_middle_a_transaction_is_prepared_and_has_no_marker(kafka, client):
    may_go = threading.Event()
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", transactional_id=ID, action=Hold(may_go))
    assert client.send(end, 5).error_code == 0
    assert kafka.transaction(ID).state == "PrepareCommit"
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [1, 1]
    may_go.set()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    kafka.assert_quiescent(clients_may_wait=True)


def test_between_two_partitions_one_has_its_marker_and_the_other_has_none(kafka, client):
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


def test_a_crash_between_two_markers_keeps_the_first_and_recovery_writes_the_second(kafka, client):
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", partition=1, times=1, action=lambda _: kafka.crash())
    client.post(end, 5)
    client.is_closed_by_peer()
    kafka.wait_for(lambda: not kafka.broker(1).is_running)
    kafka.restart()
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [3, 2], (
        "the first partition gets a second marker, as from Kafka's coordinator that lost its memory"
    )


def test_a_coordinator_that_crashes_in_the_middle_is_followed_by_another(kafka, client):
    end = begun(client, (0, 1))
    kafka.fault(api="EndTxn", when="mid", times=1, action=lambda _: kafka.broker(1).crash())
    client.post(end, 5)
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert kafka.transaction(ID).coordinator == 2
    assert [kafka.partition("in", each).log_end_offset for each in (0, 1)] == [2, 2], (
        "a dead coordinator writes no marker any more"
    )


def test_a_lost_marker_is_written_again_after_the_coordinators_backoff(kafka, client):
    end = begun(client)
    fault = kafka.fault(when="mid", action=Drop(), times=2)
    assert client.send(end, 5).error_code == 0
    kafka.wait_for(lambda: kafka.transaction(ID).state == "CompleteCommit")
    assert fault.hits == 2


# Who is struck


@pytest.mark.parametrize(
    ("matcher", "strikes"),
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
        ({"group": "g"}, False),
        ({"transactional_id": "t"}, False),
        ({"api": "Produce"}, False),
        ({}, True),
    ],
)
def test_a_fault_strikes_who_it_is_meant_for(kafka, client, matcher, strikes):
    with kafka.fault(**{"api": "Metadata"} | matcher, action=Error("LEADER_NOT_AVAILABLE")) as fault:
        code = metadata(client).topics[0].error_code
    assert (code == ErrorCode.LEADER_NOT_AVAILABLE, fault.hits) == (strikes, strikes)
    assert metadata(client).topics[0].error_code == 0, "it is over with its block"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"times": 2}, [5, 5, 0, 0]),
        ({"nth": 2}, [0, 5, 0, 0]),
        ({"nth": 2, "times": 2}, [0, 5, 5, 0]),
        ({}, [5] * 4),
    ],
)
def test_a_fault_strikes_as_often_as_it_may(kafka, client, counts, expected):
    kafka.fault(api="Metadata", action=Error(5), **counts)
    assert [metadata(client).topics[0].error_code for _ in range(4)] == expected


def test_a_group_and_a_partition_are_found_in_requests(kafka, client):
    kafka.fault(api="FindCoordinator", group="g", action=Error("NOT_COORDINATOR"))
    kafka.fault(api="ListOffsets", topic="in", partition=1, action=Error("NOT_LEADER_OR_FOLLOWER"))
    assert client.send(m.FindCoordinatorRequest(key="g"), 3).error_code == ErrorCode.NOT_COORDINATOR
    assert client.send(m.FindCoordinatorRequest(key="h"), 3).error_code == 0
    form = m.ListOffsetsRequest.ListOffsetsTopic
    for partition, code in ((0, 0), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        answer = client.send(
            m.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    form(name="in", partitions=[form.ListOffsetsPartition(partition_index=partition, timestamp=-1)])
                ],
            ),
            5,
        )
        assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"api": "EndTransaction"}, "EndTransaction.*EndTxn"),
        ({"when": "later"}, "before, after_apply, mid"),
        ({"when": "mid", "api": "Fetch"}, "Fetch has only one phase"),
        ({"when": "mid", "client_id": "c"}, "are sent by no client"),
        ({"nth": 0}, "count from 1"),
        ({"times": 0}, "count from 1"),
        ({"action": 3}, "expected Error, Delay"),
    ],
)
def test_what_can_never_strike_is_refused_at_once(kafka, wrong, told):
    with pytest.raises(ValueError, match=told):
        kafka.fault(**{"action": Drop()} | wrong)


def test_an_error_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="'COORDINATOR_AWAY'"):
        Error("COORDINATOR_AWAY")


# The log of requests


def test_the_log_tells_who_asked_for_what_and_what_came_of_it(kafka, client):
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


def test_the_log_keeps_the_newest_requests_only():
    with EmbeddedBroker(requests_kept=3, topics={"in": 1}) as kafka, RawClient(kafka.bootstrap_servers) as client:
        for version in (5, 6, 7, 8, 9):
            client.send(m.MetadataRequest(topics=[]), version)
        assert [seen.version for seen in kafka.requests()] == [7, 8, 9]
