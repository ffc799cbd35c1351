"""The records of share groups in files: both brokers write the same, which Apache Kafka's tool reads.

Rules K.4/5 and K.5/1: `__share_group_state`, and the records of share groups in `__consumer_offsets`.
"""

import json
import shutil
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.server.disk import DiskStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from broker_core.wire import messages as m
from tests.support.apache_kafka import apache_kafka
from tests.support.both_brokers import BROKERS, Kafka
from tests.support.clients import make_producer, make_topic, send
from tests.support.direct import DirectClient, direct_cluster
from tests.support.dump_log_segments import dump_log_segments, log_files
from tests.support.raw_client import RawClient
from tests.support.share_session import ACCEPT, REJECT, RELEASE, Range, ShareMember, acquired, make_group

E = ErrorCode
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Every third record of a share partition is a snapshot, the others are updates.
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}
INTERNAL = {SHARE_GROUP_STATE_TOPIC: "--share-group-state-decoder", CONSUMER_OFFSETS_TOPIC: "--offsets-decoder"}
FINAL = -1
# These fields differ from run to run.
TIMES = {"createTimestamp", "writeTimestamp", "assignmentTimestamp", "metadataHash"}
SNAPSHOT, UPDATE = "0", "1"


class Left(NamedTuple):
    """What a broker left, and what its clients saw at the end: start offset, lag, and the persisted state."""

    root: Path
    topic: str
    topic_id: UUID
    group: str
    member_id: str
    offsets: tuple[int, int]
    state: tuple[int, list[tuple[int, int, int, int]]]

    @property
    def names(self) -> dict[str, str]:
        """Return what replaces the names of this run."""
        return {self.topic: "topic", self.group: "group", self.member_id: "member", "raw-client": "client"}


def _write(kafka: Kafka, root: Path) -> Left:
    """Let a member acknowledge records in all ways, and leave."""
    topic = make_topic(kafka)
    send(make_producer(kafka), topic, [b"%d" % number for number in range(6)], partition=0)
    group = make_group(kafka)
    with RawClient(kafka.bootstrap_servers) as client:
        member = ShareMember(client, group, topic).join()
        assert member.acquire() == [Range(0, 5)]
        assert member.acknowledge(0, 1, ACCEPT) == E.NONE
        assert member.acknowledge(2, 4, RELEASE, REJECT, ACCEPT) == E.NONE
        assert member.acknowledge(5, 5, RELEASE) == E.NONE
        assert member.acquire() == [Range(2, 2, 2), Range(5, 5, 2)]
        assert member.acknowledge(2, 2, RELEASE) == E.NONE
        assert member.acknowledge(5, 5, RELEASE, session_epoch=FINAL) == E.NONE
        assert member.heartbeat(FINAL).error_code == E.NONE
        form = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        named = form.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])
        request = m.DescribeShareGroupOffsetsRequest(groups=[form(group_id=group, topics=[named])])
        [described] = client.send(request, 1).groups[0].topics[0].partitions
        return Left(
            root,
            topic,
            member.topic_id,
            group,
            member.member_id,
            (described.start_offset, described.lag),
            read_state(lambda request: client.send(request, 0), group, member.topic_id),
        )


def read_state(ask: Callable[[Any], Any], group: str, topic_id: UUID) -> tuple[int, list[tuple[int, int, int, int]]]:
    """Return the start offset and the batches of a persisted state."""
    form = m.ReadShareGroupStateRequest.ReadStateData
    topics = [form(topic_id=topic_id, partitions=[form.PartitionData(partition=0, leader_epoch=0)])]
    [found] = ask(m.ReadShareGroupStateRequest(group_id=group, topics=topics)).results[0].partitions
    assert found.error_code == E.NONE, found
    return found.start_offset, [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found.state_batches
    ]


@pytest.fixture(scope="module")
def all_left(apache_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """Let both brokers write the same, and stop them."""
    own = tmp_path_factory.mktemp("broker_core")
    with EmbeddedBroker(data_dir=own, config=SETTINGS) as embedded:
        found = {"broker_core": _write(Kafka(embedded.bootstrap_servers), own)}
    with apache_kafka(SETTINGS, tmp_path_factory.mktemp("apache")) as apache:
        found["apache"] = _write(Kafka(apache.bootstrap_servers), apache.data_folder)
        apache.stop()
    return found


def dumped(left: Left, topic: str) -> list[tuple[Any, Any]]:
    """Return the keys and values of an internal topic's records as Apache Kafka's tool reads them."""
    names = [name for folder in left.root.glob(f"{topic}-*") for name in log_files(left.root, folder.name)]
    dump = dump_log_segments(left.root, [name for name in names if name.endswith(".log")], INTERNAL[topic])
    assert dump.complaints == []
    records = [each for file in dump.files for each in file.records if each.marker is None]
    return [
        (json.loads(each.key), None if each.payload == "<DELETE>" else json.loads(each.payload)) for each in records
    ]


def comparable(left: Left, topic: str) -> list[tuple[Any, Any]]:
    """Return them without what differs from run to run."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cleaned(each) for key, each in value.items() if key not in TIMES}
        if isinstance(value, list):
            return [cleaned(each) for each in value]
        if isinstance(value, str) and value in left.names:
            return left.names[value]
        is_id = isinstance(value, str) and len(value) == 22
        return "id" if is_id and UUID(bytes=urlsafe_b64decode(value + "==")) == left.topic_id else value

    return [(cleaned(key), cleaned(value)) for key, value in dumped(left, topic)]


def test_both_brokers_persist_the_same_states(all_left: dict[str, Left]):
    own, apache = (comparable(all_left[kind], SHARE_GROUP_STATE_TOPIC) for kind in ("broker_core", "apache"))
    assert {key["type"] for key, _ in own} == {SNAPSHOT, UPDATE}
    assert own == apache
    assert all_left["broker_core"].state == all_left["apache"].state
    assert all_left["broker_core"].offsets == all_left["apache"].offsets == (2, 2)


def test_both_brokers_write_the_same_group_records(all_left: dict[str, Left]):
    own, apache = (last_values(all_left[kind]) for kind in ("broker_core", "apache"))
    assert {json.loads(key)["type"] for key in own} == {"10", "11", "12", "13", "14", "15"}
    assert own.keys() == apache.keys()
    # How often the group's epoch was raised depends on the times of heartbeats.
    epochs = ("epoch", "assignmentEpoch", "memberEpoch", "previousMemberEpoch")
    for key, value in own.items():
        assert without(value, epochs) == without(apache[key], epochs), key


def last_values(left: Left) -> dict[str, Any]:
    """Return the last value of each key; the topic may have other groups' records."""
    return {
        json.dumps(key): value
        for key, value in comparable(left, CONSUMER_OFFSETS_TOPIC)
        if key["data"].get("groupId") == "group"
    }


def without(value: Any, names: tuple[str, ...]) -> Any:
    """Return a value without some of its fields."""
    if not isinstance(value, dict):
        return value
    return {name: without(each, names) for name, each in value.items() if name not in names}


class _Timely:
    """A connection to a cluster without a clock: time passes until each request is answered."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client

    def send(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        cluster = self._client.cluster
        self._client.post(request, version)
        cluster.advance(cluster.now_ms + 1_000)
        answer = self._client.take()
        assert answer is not None
        return answer

    def close(self) -> None:
        """Do nothing: the cluster ends with the test."""


@pytest.mark.parametrize("kind", BROKERS)
def test_broker_core_goes_on_with_the_files(all_left: dict[str, Left], kind: str, tmp_path: Path):
    """Only the list of topics is its own: it has the id of the topic that the files name."""
    left = all_left[kind]
    storage = DiskStorage(tmp_path)
    cluster = direct_cluster(storage, settings=SETTINGS)
    cluster.controller.new_uuid = lambda: left.topic_id
    cluster.controller.create_topic(left.topic, 1)
    cluster.controller.new_uuid = cluster.new_uuid
    for name in INTERNAL:
        cluster.controller.ensure_topic(name)
    cluster.close(cluster.now_ms)
    storage.close()
    for name in (left.topic, *INTERNAL):
        shutil.rmtree(tmp_path / f"{name}-0", ignore_errors=True)
        shutil.copytree(left.root / f"{name}-0", tmp_path / f"{name}-0")
    storage = DiskStorage(tmp_path)
    cluster = direct_cluster(storage, settings=SETTINGS)
    client = DirectClient(cluster)
    assert read_state(lambda request: client.ask(request, 0), left.group, left.topic_id) == left.state
    [group] = client.ask(m.ShareGroupDescribeRequest(group_ids=[left.group]), 1).groups
    assert (group.error_code, group.group_state, group.members) == (E.NONE, "Empty", [])
    heir = ShareMember(_Timely(client), left.group, left.topic)
    assert heir.topic_id == left.topic_id
    heir.join()
    assert heir.acquire() == [Range(2, 2, 3), Range(5, 5, 3)]
    assert heir.acknowledge(2, 2, ACCEPT) == E.NONE
    assert heir.acknowledge(5, 5, ACCEPT) == E.NONE
    assert acquired(heir.fetch(wait_ms=0)) == []
    cluster.close(cluster.now_ms)
    storage.close()
