"""Requests that no test should send: the control port refuses them, and goes on to answer."""

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError
from broker_core.features.control.guard import MOST_BODY_BYTES
from broker_core.features.control.server import ControlServer
from tests.support.broker_core.control_client import ControlClient, controlled, refused

JSON = {"Content-Type": "application/json"}
TIMEOUT = 30


@pytest.fixture(scope="module")
def control():
    with controlled(topics={"in": 1}) as found:
        yield found


@pytest.fixture(autouse=True)
def answers_afterwards(control):
    yield
    assert "in" in control.client.get("topics")["topics"]


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:80", "127.0.0.1.attacker.example", "", "localhost.", "@"]
)
def test_other_names_of_this_machine_reach_nothing(control, host):
    answer = control.client.send("GET", "/topics", headers={"Host": host})
    refused(answer, 421, "the Host", "--control-name")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:32768", "[::1]:80", "192.168.0.7:80"])
def test_addresses_and_localhost_are_served_at_any_port(control, host):
    assert control.client.send("GET", "/topics", headers={"Host": host}).status == 200


def test_further_names_are_given_by_hand():
    with EmbeddedBroker() as kafka, ControlServer(kafka, names=["Broker"]) as server:
        assert ControlClient(server.url).send("GET", "/topics", headers={"Host": "broker:9405"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
    ],
)
def test_pages_in_browsers_are_refused(control, headers):
    refused(control.client.send("GET", "/topics", headers=headers), 403, "a page in a browser")
    refused(control.client.send("POST", "/crash", b"{}", {**JSON, **headers}), 403, "a page in a browser")


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_other_content_types_are_refused(control, content_type):
    answer = control.client.send("POST", "/crash", b"{}", {"Content-Type": content_type})
    refused(answer, 415, "Content-Type", "application/json")


def test_no_page_gets_a_permission(control):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [
        control.client.send("OPTIONS", "/crash", headers=asked),
        control.client.send("OPTIONS", "/crash"),
        control.client.ask("topics"),
    ]
    assert [each.status for each in answers] == [403, 405, 200]
    for answer in answers:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b"\xff\xfe",
        b'{"topic": "in", "values": ["\\ud800"]}',
        b'{"topic": "in\\u0000", "values": []}',
        b'{"topic": "in", "values": "text"}',
        b'{"topic": "in", "values": [[1]]}',
        b'{"topic": "in", "values": [{"base64": "x"}]}',
        b'{"topic": "in", "values": [{"headers": [["a"]]}]}',
        b'{"topic": "in", "values": [{"headers": [[null, "a"]]}]}',
        b'{"topic": "in", "values": [{"timestamp_ms": 1e30}]}',
        b'{"topic": "in", "values": [{"timestamp_ms": 18446744073709551616}]}',
        b'{"topic": "in", "values": ["x"], "partition": "0"}',
        b'{"topic": "in", "values": ["x"], "transactional": 1}',
        b'{"topic": "in", "values": ["x"], "end": "abort"}',
        b'{"topic": "", "values": ["x"]}',
        b'{"topic": "in", "values": ["x"], "partition": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"topic":' * 50_000,
    ],
    ids=range(23),
)
def test_bodies_that_are_no_records_are_refused(control, body):
    answer = control.client.send("POST", "/produce", body, JSON)
    assert answer.status == 400, answer
    assert answer.json["error"]
    assert control.client.get("records", topic="in") == {"records": []}


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("produce", {"topic": "in", "values": ["x"], "transactional": ""}, "a transactional id is not empty"),
        ("fault", {"action": {"type": "Drop"}, "broker": 9}, "there is no broker 9"),
        ("without_coordinator", {"group": ""}, "cannot be empty"),
        ("move_coordinator", {"group": "", "broker": 1}, "cannot be empty"),
        ("create_topic", {"name": ""}, "the empty string is not allowed"),
        ("create_topic", {"name": "größe"}, "other than ASCII alphanumerics"),
        ("create_topic", {"name": "t" * 300}, "is longer than the max allowed length"),
    ],
)
def test_values_that_cannot_be_are_refused(control, name, fields, words):
    refused(control.client.call(name, **fields), 400, words)
    assert control.client.get("records", topic="in") == {"records": []}


def test_huge_body_is_refused(control):
    refused(control.client.send("POST", "/produce", b" " * (MOST_BODY_BYTES + 1), JSON), 413, "larger than")


def test_huge_body_of_unknown_length_is_refused(control):
    chunk = b" " * 1024 * 1024
    connection = http.client.HTTPConnection(urlsplit(control.client.url).netloc, timeout=TIMEOUT)
    try:
        body = (chunk for _ in range(MOST_BODY_BYTES // len(chunk) + 1))
        connection.request("POST", "/produce", body, JSON, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 413
    except (BrokenPipeError, ConnectionResetError):
        # The server closed the connection before it had read everything.
        pass
    finally:
        connection.close()


def test_records_that_are_too_large_are_refused(control):
    refused(control.client.call("produce", topic="in", values=["x" * 3_000_000]), 400, "MESSAGE_TOO_LARGE")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/topics/",
        "/TOPICS",
        "/../etc/passwd",
        "/records?topic=in&partition=-1",
        "/records?topic=in&partition=x",
        "/records?topic=in&isolation=committed",
        "/records",
        "/records?topic=in&topic=in&extra=1",
        "/wait_for_records?topic=in&count=1&timeout=1e9",
        "/wait_for_records?topic=in&count=1&timeout=nan",
        "/partition?topic=in&partition=1",
        "/records?topic=in&partition=99999999999999999999",
        "/requests?api=Produc",
        "/coordinator?group=",
    ],
)
def test_addresses_that_cannot_be_are_refused(control, path):
    answer = control.client.send("GET", path)
    assert answer.status in (400, 404), answer
    assert answer.json["what_to_do"]


def test_bytes_that_are_no_request_close_only_their_connection(control):
    host, port = urlsplit(control.client.url).netloc.split(":")
    for data in (
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /topics HTTP/1.1\r\n\r\n",
        b"G" * 100_000 + b"\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            try:
                received = client.recv(1000)
            except ConnectionResetError:
                continue
            assert b" 200 " not in received


def test_calls_at_once_do_not_disturb_each_other():
    with controlled(brokers=2) as (client, _), ThreadPoolExecutor(8) as pool:
        calls = [("restart", {})] * 4 + [("crash", {})] * 2 + [("start_broker", {"broker": 1})] * 4
        calls += [("create_topic", {"name": f"t{number}"}) for number in range(4)] * 2
        answers = list(pool.map(lambda call: client.call(call[0], **call[1]), calls * 2))
        assert {each.status for each in answers} <= {200, 201, 409}, answers
        for broker in (1, 2):
            client.post("start_broker", broker=broker)
        client.post("create_topic", name="afterwards")
        client.post("produce", topic="afterwards", values=["x"])
        assert len(client.get("records", topic="afterwards")["records"]) == 1


def test_snapshots_that_are_restored_at_once_are_whole():
    with controlled(topics={"t": 2}) as (client, kafka), ThreadPoolExecutor(8) as pool:
        kafka.produce("t", ["one"])
        one = client.post("snapshot")["id"]
        kafka.produce("t", ["two"])
        kafka.create_topic("other")
        two = client.post("snapshot")["id"]
        calls = [
            lambda: client.call("restore", id=one),
            lambda: client.call("restore", id=two),
            lambda: client.call("produce", topic="t", values=["x"]),
            lambda: client.call("produce", topic="t", values=["x"], transactional=True),
        ]
        answers = list(pool.map(lambda call: call(), calls * 8))
        assert {each.status for each in answers} <= {200, 409}, answers
        assert {each.status for each in answers[::4] + answers[1::4] + answers[2::4]} == {200}
        codes = {each.json["code"] for each in answers if each.status == 409}
        # The snapshot does not have the producer of the transaction, or has an earlier one.
        assert codes <= {
            "INVALID_PRODUCER_ID_MAPPING",
            "INVALID_PRODUCER_EPOCH",
            "PRODUCER_FENCED",
            "INVALID_TXN_STATE",
        }
        client.post("restore", id=two)
        assert kafka.topics == {"t": 2, "other": 1}
        assert sorted(kafka.records("t").values) == [b"one", b"two"]
        client.post("restore", id=one)
        assert kafka.topics == {"t": 2}
        assert kafka.records("t").values == [b"one"]
        kafka.assert_quiescent()


def test_outages_of_what_a_restore_or_a_deletion_removes_end():
    with controlled(topics={"t": 1}, brokers=2) as (client, _):
        snapshot = client.post("snapshot")["id"]
        for remove in (("restore", {"id": snapshot}), ("delete_topic", {"name": "late"})):
            client.post("create_topic", name="late")
            for topic in ("late", "t"):
                client.post("without_leader", topic=topic, partition=0)
            client.post("stale_broker", broker=2)
            client.post(remove[0], **remove[1])
            client.post("reset")
            assert client.get("outages") == {"outages": []}
            assert client.get("leader", topic="t", partition=0) == {"broker": 1}
            assert client.get("topics") == {"topics": {"t": 1}}


def test_wait_during_a_crash_ends_with_its_reason(control):
    client, kafka = control
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(client.ask("wait_for_records", topic="in", count=1, timeout=TIMEOUT))
    )
    waiting.start()
    client.post("crash")
    waiting.join(TIMEOUT)
    refused(answers[0], 409, "all brokers have crashed", "POST /restart")
    client.post("restart")
    if "in" not in kafka.topics:
        client.post("create_topic", name="in")


def test_many_waiting_requests_leave_others_their_threads(control):
    client, _ = control
    # More than the threads of requests that do not wait.
    with ThreadPoolExecutor(60) as pool:
        waits = [pool.submit(client.get, "wait_for_records", topic="late", count=1, timeout=TIMEOUT) for _ in range(60)]
        client.post("produce", topic="late", values=["x"])
        assert {len(each.result(TIMEOUT)["records"]) for each in waits} == {1}


def test_limits_of_faults_and_snapshots():
    with controlled() as (client, _):
        for _ in range(100):
            client.post("snapshot")
        refused(client.call("snapshot"), 409, "there are 100 snapshots", "")
        client.post("remove_snapshot", id="snapshot-1")
        client.post("snapshot")


def test_port_in_use_and_ports_that_cannot_be():
    with EmbeddedBroker() as kafka, ControlServer(kafka) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"cannot serve the control port on 127.0.0.1:{port}"):
            ControlServer(kafka, port=port)
        with pytest.raises(ConfigError, match="65536"):
            ControlServer(kafka, port=65536)


def test_close_gives_up_what_waits():
    with EmbeddedBroker() as kafka:
        server = ControlServer(kafka).start()
        client = ControlClient(server.url)
        client.get("topics")
        began = threading.Event()
        outcome = []

        def wait():
            began.set()
            try:
                outcome.append(client.ask("wait_for_records", topic="t", count=1, timeout=600).status)
            except (OSError, http.client.HTTPException) as error:
                outcome.append(type(error))

        waiting = threading.Thread(target=wait)
        waiting.start()
        began.wait(TIMEOUT)
        server.close()
        waiting.join(TIMEOUT)
        assert outcome
        assert outcome[0] != 200


def test_text_in_answers_is_json(control):
    problem = control.client.ask("transaction", transactional_id='"\n\u2028<script>')
    assert problem.status == 404
    assert json.loads(problem.body)["error"]
