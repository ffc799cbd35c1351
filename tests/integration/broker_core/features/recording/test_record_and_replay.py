"""Recordings of requests and responses, and their replay on a fresh broker."""

import asyncio
import doctest
import importlib
import json
import os
import threading

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka.protocol.metadata import ApiVersionsRequest

from broker_core import Disconnect, EmbeddedBroker, Error, aio, replay
from tests.support.clients import DEADLINE_S, make_producer, make_topic, metadata_of, send
from tests.support.raw_client import RawClient
from tests.support.recorded_session import names, read_while_written, record


def _lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_replay_on_a_fresh_broker_gets_the_same_answers(tmp_path, protocol):
    path, used = tmp_path / "requests.jsonl", names()
    values = record(path, used, protocol)
    assert values == [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
    with EmbeddedBroker() as kafka:
        # Other ids than those recorded.
        for number in range(3):
            kafka.produce(kafka_topic := f"other-{number}", ["value"], transactional=kafka_topic)
        assert [str(each) for each in replay(path, kafka.bootstrap_servers)] == []
        assert kafka.records(used.source, isolation="read_committed").values == values
        assert kafka.records(used.target, isolation="read_committed").values == [b"result"]
        assert set(kafka.group(used.group).committed.values()) == {11}


def test_a_replay_repeats_requests_that_waited_for_others(tmp_path):
    path, used = tmp_path / "requests.jsonl", names()
    with EmbeddedBroker(topics={used.source: 2}) as kafka, kafka.recording(path):
        values = read_while_written(kafka, used)
    assert sorted(values) == [f"{number}-{partition}".encode() for number in range(3) for partition in range(2)]
    with EmbeddedBroker() as kafka:
        kafka.produce("other", ["value"], transactional=True)
        assert [str(each) for each in replay(path, kafka.bootstrap_servers)] == []
        assert sorted(kafka.records(used.source, isolation="read_committed").values) == sorted(values)


def test_a_fault_is_the_only_difference(tmp_path):
    path, used = tmp_path / "requests.jsonl", names()
    with EmbeddedBroker(topics={used.source: 1}) as kafka, kafka.recording(path):
        producer = make_producer(kafka)
        send(producer, used.source, [b"value"])
        metadata_of(kafka.bootstrap_servers)
    with EmbeddedBroker() as kafka, kafka.fault(api="Produce", when="after_apply", action=Error("NOT_ENOUGH_REPLICAS")):
        found = replay(path, kafka.bootstrap_servers)
        assert kafka.records(used.source).values == [b"value"]
    assert {each.api for each in found} == {"Produce"}
    assert ("responses.partition_responses.error_code", 0, 19) in [each[3:] for each in found]


def test_a_refused_end_of_a_transaction_shows_up(tmp_path):
    path, used = tmp_path / "requests.jsonl", names()
    record(path, used)
    with EmbeddedBroker() as kafka, kafka.fault(api="EndTxn", action=Error("INVALID_TXN_STATE"), nth=3):
        found = replay(path, kafka.bootstrap_servers)
    ends = [each for each in found if each.api == "EndTxn"]
    assert [(each.path, each.recorded, each.new) for each in ends] == [("error_code", 0, 48)]
    # What follows from it: the consumer does not read the records of the transaction.
    assert {each.api for each in found} <= {"EndTxn", "Fetch", "ListOffsets", "AddPartitionsToTxn", "AddOffsetsToTxn"}


def test_a_changed_setting_shows_up(tmp_path):
    path, used = tmp_path / "requests.jsonl", names()
    record(path, used)
    with EmbeddedBroker(config={"message.max.bytes": "60"}) as kafka:
        found = replay(path, kafka.bootstrap_servers)
    assert ("responses.partition_responses.error_code", 0, 10) in [each[3:] for each in found if each.api == "Produce"]


def test_an_answer_in_an_older_version_shows_up(tmp_path):
    """A server answers a version of ApiVersions that it does not know in version 0, which has fewer fields."""
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka, kafka.recording(path), RawClient(kafka.bootstrap_servers) as client:
        client.send(ApiVersionsRequest(client_software_name="a-client", client_software_version="1"), 4)
    with EmbeddedBroker(kafka_version="3.6") as kafka:
        found = {each.path: each for each in replay(path, kafka.bootstrap_servers)}
    assert (found["error_code"].recorded, found["error_code"].new) == (0, 35)
    assert found["finalized_features"].new is None


def test_secrets_are_not_recorded(tmp_path):
    path = tmp_path / "requests.jsonl"
    with (
        EmbeddedBroker(listeners={"S": "SASL_PLAINTEXT"}, users={"alice": "secret-of-alice"}) as kafka,
        kafka.recording(path),
    ):
        admin = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "secret-of-alice",
            }
        )
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("bob", info, b"secret-of-bob")
        admin.alter_user_scram_credentials([change])["bob"].result(DEADLINE_S)
    lines = _lines(path)
    left_out = {each["api"] for each in lines[1:] if each["kind"] == "left out"}
    assert left_out == {"SaslAuthenticate", "AlterUserScramCredentials"}
    assert left_out.isdisjoint(each.get("api") for each in lines if each.get("frame"))
    with EmbeddedBroker() as kafka:
        assert {each.api for each in replay(path, kafka.bootstrap_servers)} <= {"ApiVersions"}


def test_clients_come_and_go_during_a_recording(tmp_path):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker(topics={"in": 1}) as kafka:
        before = make_producer(kafka)
        send(before, "in", [b"before"])

        def visit():
            for _ in range(5):
                metadata_of(kafka.bootstrap_servers)

        visitors = [threading.Thread(target=visit) for _ in range(3)]
        for visitor in visitors:
            visitor.start()
        with kafka.recording(path):
            send(before, "in", [b"during"])
            metadata_of(kafka.bootstrap_servers)
            for visitor in visitors:
                visitor.join(DEADLINE_S)
        size_bytes = path.stat().st_size
        send(before, "in", [b"after"])
        assert path.stat().st_size == size_bytes
        assert len(kafka.records("in")) == 3
    asked, closed = set(), set()
    for each in _lines(path)[1:]:
        if each["kind"] == "closed":
            closed.add(each["connection"])
        else:
            assert each["connection"] not in closed
            key = each["connection"], each["correlation_id"]
            assert (key in asked) is (each["kind"] == "response")
            asked ^= {key}
    with EmbeddedBroker() as kafka:
        replay(path, kafka.bootstrap_servers)
        assert len(kafka.records("in")) <= 1


def test_a_lost_connection_is_a_difference(tmp_path):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka, kafka.recording(path):
        metadata_of(kafka.bootstrap_servers)
    with EmbeddedBroker() as kafka, kafka.fault(api="ApiVersions", action=Disconnect(), times=1):
        (found,) = replay(path, kafka.bootstrap_servers)
    assert found.api == "ApiVersions"
    assert found[3:] == ("", "an answer", "no answer")


def test_recording_with_asyncio(tmp_path):
    path = tmp_path / "requests.jsonl"

    async def program():
        async with aio.EmbeddedBroker() as kafka:
            async with kafka.recording(path):
                await asyncio.to_thread(metadata_of, kafka.bootstrap_servers)
            size_bytes = path.stat().st_size
            recording = await kafka.recording(path)
            await recording.end()
            assert 0 < path.stat().st_size < size_bytes

    asyncio.run(asyncio.wait_for(program(), DEADLINE_S))


def test_a_second_recording_is_refused(kafka, tmp_path):
    with kafka.recording(tmp_path / "one"):
        with pytest.raises(RuntimeError, match="a recording is in progress"):
            kafka.recording(tmp_path / "two")
    with kafka.recording(tmp_path / "three") as recording:
        recording.end()


def test_a_recording_outlives_the_broker(tmp_path):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka:
        recording = kafka.recording(path)
        make_topic(kafka)
    recording.end()
    assert _lines(path)[0]["format"] == "broker_core requests"


def test_a_file_that_cannot_be_created(kafka, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        kafka.recording(tmp_path / "nowhere" / "requests.jsonl")
    with kafka.recording(tmp_path / "requests.jsonl"):
        make_topic(kafka)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, the device that is always full")
def test_a_full_disk_ends_the_recording_and_not_the_broker(kafka):
    with pytest.raises(OSError, match="No space left"):
        with kafka.recording("/dev/full"):
            topic = make_topic(kafka)
            send(make_producer(kafka), topic, [b"value"])
    assert kafka.records(topic).values == [b"value"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[:1], "has no request"),
        (lambda lines: [lines[0][:20]], "line 1, is damaged"),
        (lambda lines: [lines[0], lines[1].replace('"broker": 1', '"broker": 7')], "line 2, .* not name broker 7"),
        (lambda lines: ["{}", *lines[1:]], "is not a recording"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 7'), *lines[1:]], "version 7 of the format"),
        (lambda lines: [*lines[:2], lines[2][:40]], "line 3, is damaged"),
        (lambda lines: [*lines[:2], '["request"]'], "line 3, is damaged: it is not a JSON object"),
        (lambda lines: [*lines[:2], '{"kind": "request"}'], "line 3, is damaged: KeyError"),
        (lambda lines: [lines[0], lines[1].replace('"frame": "', '"frame": "!')], "line 2, is damaged"),
        (lambda lines: [lines[0], lines[1].replace('"frame": "', '"frame": "AAAA')], "line 2"),
    ],
)
def test_a_damaged_file_is_refused_with_the_line(tmp_path, damage, message):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka:
        with kafka.recording(path):
            metadata_of(kafka.bootstrap_servers)
        path.write_text("\n".join(damage(path.read_text(encoding="utf-8").splitlines())), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            replay(path, kafka.bootstrap_servers)


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:kafka", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(tmp_path, address):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka, kafka.recording(path):
        pass
    with pytest.raises(ValueError, match="expected host:port"):
        replay(path, address)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bootstrap_servers": EmbeddedBroker()}, "expected addresses as str, such as kafka.bootstrap_servers"),
        ({"bootstrap_servers": ["127.0.0.1:9092"]}, "expected addresses as str"),
        ({"deadline_s": "10"}, "deadline_s='10'; expected a number"),
    ],
)
def test_an_argument_of_another_type_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        replay("requests.jsonl", **{"bootstrap_servers": "127.0.0.1:9092"} | wrong)


def test_a_server_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker() as kafka, kafka.recording(path):
        address = kafka.bootstrap_servers
    with pytest.raises(ConnectionRefusedError, match=f"the server {address} cannot be reached"):
        replay(path, address)


def test_a_server_with_fewer_brokers_is_refused(tmp_path):
    path = tmp_path / "requests.jsonl"
    with EmbeddedBroker(brokers=2) as kafka, kafka.recording(path):
        commit_topics = metadata_of(kafka.bootstrap_servers).topics
    assert not commit_topics
    with EmbeddedBroker() as kafka, pytest.raises(ValueError, match="the server has 1 brokers, the recorded one 2"):
        replay(path, kafka.bootstrap_servers)


def _run_clients(bootstrap_servers):
    metadata_of(bootstrap_servers)


def test_docstring_examples_are_correct(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names_in_examples = {"EmbeddedBroker": EmbeddedBroker, "run_clients": _run_clients}
    module = importlib.import_module("broker_core.features.recording.replay")
    found = doctest.testmod(module, extraglobs=names_in_examples)
    assert (found.failed, found.attempted) == (0, 2)
    assert (tmp_path / "requests.jsonl").exists()
