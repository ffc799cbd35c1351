"""The control port's routes for faults and throttling."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from tests.support.broker_core.control_client import controlled, refused

TIMEOUT = 30


@pytest.fixture(scope="module")
def control():
    with controlled(topics={"in": 2}) as found:
        yield found


@pytest.fixture(autouse=True)
def without_faults(control):
    yield
    control.client.post("reset")
    assert control.client.get("faults") == {"faults": []}
    assert control.kafka._server.fault_injector.faults == ()


def producer(control, **settings):
    return Producer({"bootstrap.servers": control.kafka.bootstrap_servers, **settings})


def in_transaction(control, name):
    found = producer(control, **{"transactional.id": name})
    found.init_transactions(TIMEOUT)
    found.begin_transaction()
    found.produce("in", name.encode(), partition=0)
    return found


def test_held_request_is_released(control):
    client, kafka = control
    writer = in_transaction(control, "held")
    fault = client.post("fault", api="EndTxn", transactional_id="held", when="mid", action={"type": "Hold"})
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(writer.commit_transaction, TIMEOUT)
        client.get("wait_for_hits", id=fault["id"], timeout=TIMEOUT)
        assert kafka.transaction("held").state == "PrepareCommit"
        held = client.get("partition", topic="in", partition=0)
        assert held["last_stable_offset"] < held["high_watermark"]
        assert client.post("release", id=fault["id"])["hits"] == 1
        commit.result(TIMEOUT)
    kafka.wait_for(lambda: kafka.transaction("held").state == "CompleteCommit", timeout=TIMEOUT)


def test_removal_of_a_fault_releases_what_it_holds(control):
    client, _ = control
    fault = client.post("fault", api="Produce", client_id="waits", action={"type": "Hold"})
    writer = producer(control, **{"client.id": "waits"})
    writer.produce("in", b"x")
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(writer.flush, TIMEOUT)
        client.get("wait_for_hits", id=fault["id"], timeout=TIMEOUT)
        client.post("remove_fault", id=fault["id"])
        assert flushed.result(TIMEOUT) == 0
    refused(client.call("remove_fault", id=fault["id"]), 404, f"there is no fault '{fault['id']}'")
    refused(client.call("release", id="fault-0"), 404, "there is no fault 'fault-0'")


def test_requests_that_match_and_those_that_are_hit_are_counted(control):
    client, _ = control
    delayed = client.post("fault", api="Produce", client_id="slow", action={"type": "Delay", "seconds": 0.05}, nth=2)
    writer = producer(control, **{"client.id": "slow"})
    for _ in range(2):
        writer.produce("in", b"x")
        assert writer.flush(TIMEOUT) == 0
    [found] = client.get("faults")["faults"]
    assert (found["id"], found["hits"], found["matched"]) == (delayed["id"], 1, 2)


def test_throttled_client(control):
    client, _ = control
    throttled = client.post("throttle", seconds=0.05, client_id="throttled", api="Produce")
    writer = producer(control, **{"client.id": "throttled"})
    writer.produce("in", b"x")
    assert writer.flush(TIMEOUT) == 0
    assert client.get("wait_for_hits", id=throttled["id"], hits=1, timeout=TIMEOUT)["matched"] == 1


def test_wait_for_hits_that_do_not_come(control):
    client, _ = control
    fault = client.post("fault", api="Heartbeat", action={"type": "Drop"})
    refused(client.ask("wait_for_hits", id=fault["id"], hits=2, timeout=0.1), 409, "of 2 requests within 0.1 s")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": {"type": "Drop"}, "api": "EndTx"}, "did you mean 'EndTxn'?"),
        ({"action": {"type": "Drop"}, "api": "Banana"}, "there are AddOffsetsToTxn, "),
        ({"action": {"type": "Drop"}, "ap": "EndTxn"}, "ap: there is no such field"),
        ({"action": {"type": "Drop"}, "when": "later"}, "'before', 'after_apply' or 'mid'"),
        ({"action": {"type": "Dropp"}}, "'Dropp'"),
        ({"action": {"type": "Drop", "seconds": 1}}, "action.Drop.seconds: there is no such field"),
        ({"action": {"type": "Delay"}}, "action.Delay.seconds: the field is missing"),
        ({"action": {"type": "Delay", "seconds": -1}}, "greater than or equal to 0"),
        ({"action": {"type": "Delay", "seconds": "1"}}, "valid number"),
        ({"action": {"type": "Throttle", "seconds": 1e300}}, "less than or equal to"),
        ({"action": {"type": "Throttle", "seconds": 1}, "when": "mid"}, "Throttle applies to an answer"),
        ({"action": {"type": "Error", "code": "NOT_CORDINATOR"}}, "such as NOT_COORDINATOR"),
        ({"action": {"type": "Error", "code": "COORDINATOR_AVAILABLE"}}, "such as COORDINATOR_NOT_AVAILABLE"),
        ({"action": {"type": "Error", "code": 16}}, "valid string"),
        ({"action": {"type": "Drop"}, "times": 0}, "nth and times count from 1"),
        ({"action": {"type": "Drop"}, "times": True}, "times"),
        ({"action": {"type": "Drop"}, "when": "mid", "api": "Produce"}, "Produce has only one phase"),
        ({"action": {"type": "Drop"}, "when": "mid", "client_id": "x"}, "markers are sent by no client"),
        ({"action": "Drop"}, "action"),
        ({}, "action: the field is missing"),
    ],
)
def test_fault_that_cannot_be_is_refused_with_a_remedy(control, fields, words):
    refused(control.client.call("fault", **fields), 400, words)


def test_typo_in_a_field_has_a_suggestion(control):
    refused(control.client.call("fault", action={"type": "Drop"}, transactionalId="t"), 400, "transactionalId",
            "Did you mean transactional_id?")  # fmt: skip
