"""A session recorded on `broker_core` gets the same answers on every broker."""

from pathlib import Path

from broker_core import replay
from tests.support.both_brokers import Kafka
from tests.support.clients import values_soon
from tests.support.recorded_session import names, record

# Apache Kafka has newer versions of some APIs.
_OWN_VERSIONS = {"apache": {"ApiVersions"}, "broker_core": set()}


def test_a_recorded_session_gets_the_same_answers(kafka: Kafka, tmp_path: Path) -> None:
    path, used = tmp_path / "requests.jsonl", names()
    values = record(path, used)
    found = replay(path, kafka.bootstrap_servers, deadline_s=60)
    assert [str(each) for each in found if each.api not in _OWN_VERSIONS[kafka.name]] == []
    values_soon(kafka, used.source, values)
    values_soon(kafka, used.target, [b"result"])
