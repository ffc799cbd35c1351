"""The control port's routes for brokers, leaders, coordinators, outages, the network, the clock and inspection."""

import pytest
from confluent_kafka import Producer
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

import broker_core
from tests.support.broker_core.control_client import controlled, refused
from tests.support.raw_client import RawClient

TIMEOUT = 30


@pytest.fixture(scope="module")
def control():
    with controlled(brokers=3, topics={"in": 3}) as found:
        yield found


@pytest.fixture(autouse=True)
def with_all_brokers(control):
    yield
    control.client.post("reset")
    for each in control.kafka.broker_ids:
        control.client.post("start_broker", broker=each)


def leader(control, partition):
    return control.client.get("leader", topic="in", partition=partition)["broker"]


def test_about_names_the_addresses(control):
    client, kafka = control
    about = client.get("about")
    assert about == {
        "bootstrap_servers": kafka.bootstrap_servers,
        "broker_ids": [1, 2, 3],
        "version": broker_core.__version__,
    }
    assert client.get("bootstrap", listener="plaintext")["bootstrap_servers"] == kafka.bootstrap_servers
    refused(client.ask("bootstrap", listener="TLS"), 400, "there is no listener 'TLS'; there are PLAINTEXT")


def test_a_client_chooses_the_address_that_is_advertised():
    """As with a container: its port is mapped to one that only the test knows."""
    with controlled() as (client, kafka):
        kafka.produce("in", ["value"])
        own = kafka.bootstrap_servers.partition(":")[2]
        answer = client.post("advertise", addresses=f"localhost:{own}")
        assert answer["bootstrap_servers"] == client.get("about")["bootstrap_servers"] == f"localhost:{own}"
        with RawClient(f"127.0.0.1:{own}") as bootstrap:
            [broker] = bootstrap.send(MetadataRequest(topics=[]), 8).brokers
            coordinator = bootstrap.send(FindCoordinatorRequest(key="g", key_type=0), 2)
            assert (broker.host, broker.port) == (coordinator.host, coordinator.port) == ("localhost", int(own))
        client.post("crash_broker", broker=1)
        client.post("start_broker", broker=1)
        assert client.get("about")["bootstrap_servers"] == f"localhost:{own}"
        for addresses in ("localhost", "a b:1"):
            refused(client.call("advertise", addresses=addresses), 400, "expected host:port")
        refused(client.call("advertise", addresses="a:1,b:2"), 400, "are 2; expected one for each of 1 broker")
        refused(client.call("advertise", addresses="a:1", listener="TLS"), 400, "there is no listener 'TLS'")


@pytest.mark.parametrize("way", ["stop_broker", "crash_broker"])
def test_broker_leaves_and_comes_back(control, way):
    client, _ = control
    client.post(way, broker=2)
    assert [each["is_running"] for each in client.get("brokers")["brokers"]] == [True, False, True]
    assert 2 not in {leader(control, partition) for partition in range(3)}
    client.post(way, broker=2)
    client.post("start_broker", broker=2)
    assert all(each["is_running"] for each in client.get("brokers")["brokers"])
    refused(client.call(way, broker=4), 400, "there is no broker 4; there are 1, 2, 3")
    refused(client.call("start_broker", broker="1"), 400, "broker: input should be a valid integer")


def test_crash_of_all_and_restart(control):
    client, _ = control
    client.post("produce", topic="in", values=["before"], partition=2)
    client.post("crash")
    client.post("crash")
    for answer in (
        client.ask("topics"),
        client.ask("records", topic="in"),
        client.ask("wait_for_records", topic="in", count=1),
        client.ask("report_"),
        client.call("produce", topic="in", values=["x"]),
        client.call("move_leader", topic="in", partition=0, broker=2),
        client.call("without_leader", topic="in", partition=0),
        client.call("restore", id="snapshot-0"),
    ):
        assert answer.status in (404, 409), answer
    refused(client.ask("groups"), 409, "all brokers have crashed", "POST /restart")
    # What needs no broker is still answered.
    assert client.get("about")["broker_ids"] == [1, 2, 3]
    assert client.ask("report").status == 200
    assert not any(each["is_running"] for each in client.get("brokers")["brokers"])
    assert client.call("snapshot").status == 409
    client.post("restart")
    assert "before" in [each["value"] for each in client.get("records", topic="in", partition=2)["records"]]
    client.post("restart")
    assert client.get("topics") == {"topics": {"in": 3}}


def test_leader_moves(control):
    client, kafka = control
    epoch = client.get("partition", topic="in", partition=0)["leader_epoch"]
    client.post("move_leader", topic="in", partition=0, broker=3)
    assert leader(control, 0) == kafka.leader(("in", 0)) == 3
    assert client.get("partition", topic="in", partition=0)["leader_epoch"] > epoch
    refused(client.call("move_leader", topic="none", partition=0, broker=3), 404, "UNKNOWN_TOPIC_OR_PARTITION")
    refused(client.call("move_leader", topic="in", partition=9, broker=3), 404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert client.call("move_leader", topic="in", partition=0, broker=9).status in (400, 404, 409)
    assert client.call("leader", topic="in", partition=0).status == 405


def test_coordinator_moves(control):
    client, kafka = control
    for key in ({"group": "g"}, {"transactional_id": "t/1"}):
        client.post("move_coordinator", broker=3, **key)
        assert client.get("coordinator", **key)["broker"] == kafka.coordinator(**key) == 3
    refused(client.ask("coordinator"), 400, "name either a transactional_id or a group")
    refused(client.call("move_coordinator", broker=1, group="g", transactional_id="t"), 400, "name either")


def test_outages_begin_and_end(control):
    client, kafka = control
    before = leader(control, 1)
    without_leader = client.post("without_leader", topic="in", partition=1)
    assert leader(control, 1) == -1
    refused(client.call("produce", topic="in", values=["x"], partition=1), 409, "LEADER_NOT_AVAILABLE", "POST /reset")
    without_coordinator = client.post("without_coordinator", group="g")
    assert client.get("coordinator", group="g")["broker"] == -1
    stale = client.post("stale_broker", broker=3)
    assert kafka.leader(("in", 2)) != 3
    refused(client.call("stale_broker", broker=3), 400, "3")
    assert [(each["call"], each["arguments"]) for each in client.get("outages")["outages"]] == [
        ("without_leader", {"topic": "in", "partition": 1}),
        ("without_coordinator", {"group": "g"}),
        ("stale_broker", {"broker": 3}),
    ]
    client.post("end_outage", id=without_leader["id"])
    assert leader(control, 1) == before
    client.post("end_outage", id=without_coordinator["id"])
    assert client.get("coordinator", group="g")["broker"] > 0
    client.post("end_outage", id=stale["id"])
    assert client.get("outages") == {"outages": []}
    refused(client.call("end_outage", id=stale["id"]), 404, "there is no outage")


def test_reset_ends_what_was_begun(control):
    client, _ = control
    client.post("without_leader", topic="in", partition=0)
    client.post("without_leader", topic="in", partition=1)
    client.post("fault", action={"type": "Drop"}, api="Heartbeat")
    client.post("reset")
    assert -1 not in (leader(control, 0), leader(control, 1))
    assert (client.get("faults"), client.get("outages")) == ({"faults": []}, {"outages": []})


def test_slow_network(control):
    client, kafka = control
    outage = client.post("network", latency_ms=20, bytes_per_s=1_000_000, client_id="far-away")
    assert len(kafka._server.clients.network.rules) == 1
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "far-away"})
    writer.produce("in", b"x")
    assert writer.flush(TIMEOUT) == 0
    client.post("end_outage", id=outage["id"])
    assert not kafka._server.clients.network.rules
    refused(client.call("network"), 400, "give latency_ms, bytes_per_s or both")


def test_state_of_partitions_transactions_and_requests(control):
    client, kafka = control
    client.post("produce", topic="in", values=["a"], partition=0, transactional="ends", end="abort")
    client.post("produce", topic="in", values=["b", "c"], partition=0, transactional="open/1", end="open")
    state = client.get("partition", topic="in", partition=0)
    view = kafka.partition("in", 0)
    for name in (
        "leader",
        "leader_epoch",
        "log_start_offset",
        "last_stable_offset",
        "high_watermark",
        "log_end_offset",
    ):
        assert state[name] == getattr(view, name)
    assert [each["first_offset"] for each in state["open_transactions"]] == [state["last_stable_offset"]]
    assert state["aborted_transactions"][0]["first_offset"] == view.aborted_transactions[0].first_offset
    assert len(state["producers"]) == 2
    assert state["dump"] == view.dump()
    assert {"topic": "in", "partition": 0} in client.get("written_partitions")["partitions"]

    transaction = client.get("transaction", transactional_id="open/1")
    assert (transaction["state"], transaction["partitions"]) == ("Ongoing", [{"topic": "in", "partition": 0}])
    assert transaction in client.get("transactions")["transactions"]
    refused(client.ask("transaction", transactional_id="none"), 404, "'none' is unknown", "GET /transactions")
    refused(client.ask("assert_quiescent", clients_may_wait=True), 409, "transaction 'open/1' is Ongoing")
    client.post("end_transaction", transactional_id="open/1")
    kafka.wait_for(lambda: kafka.transaction("open/1").state == "CompleteCommit", timeout=TIMEOUT)
    assert client.get("assert_quiescent", clients_may_wait="true") == {"done": True}

    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "seen"})
    writer.produce("in", b"x", partition=2)
    assert writer.flush(TIMEOUT) == 0
    [seen] = client.get("requests", api="Produce", client_id="seen")["requests"]
    assert (seen["outcome"], seen["error_codes"], seen["topics"]) == ("answered", [], ["in"])
    assert seen["partitions"] == [{"topic": "in", "partition": 2}]
    assert "Produce" in seen["text"]
    assert client.get("requests", transactional_id="absent") == {"requests": []}


def test_report_is_a_page_without_scripts(control):
    client, _ = control
    client.post("produce", topic="in", values=["<script>alert(1)</script>"])
    answer = client.ask("report", title="<b>run 7</b>")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    page = answer.body.decode()
    assert "&lt;b&gt;run 7&lt;/b&gt;" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "<h2>Partitions</h2>" in page
    assert "<pre></pre>" not in page


def test_real_clock_cannot_be_advanced(control):
    refused(control.client.call("advance", seconds=1), 409, "the clock is real", "--clock virtual")
    refused(control.client.ask("clock"), 409, "the clock is real")


def test_virtual_clock_advances():
    with controlled(clock="virtual") as (client, kafka):
        client.post("produce", topic="in", values=["x"], transactional="t", end="open")
        before = client.get("clock")["now_ms"]
        assert client.post("advance", seconds=90.5)["now_ms"] == before + 90_500 == kafka.clock.now_ms()
        kafka.wait_for(lambda: kafka.transaction("t").state == "CompleteAbort", timeout=TIMEOUT)
        moved = client.post("advance", minutes=1, hours=1, days=1)["now_ms"]
        assert moved == before + 90_500 + 1000 * (60 + 3600 + 86_400)
        refused(client.call("advance", seconds=-1), 400, "cannot be moved back")
        refused(client.call("advance", seconds=1e18), 400, "less than or equal to")
        assert client.send("POST", "/advance", b'{"seconds": NaN}', {"Content-Type": "application/json"}).status == 400
        assert (
            client.send("POST", "/advance", b'{"seconds": 1e999}', {"Content-Type": "application/json"}).status == 400
        )
        assert client.get("clock")["now_ms"] == moved
