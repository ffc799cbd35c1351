"""Connections: the served versions, the special cases of ApiVersions, and malformed frames."""

import struct

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.clients import Kafka, make_topic
from tests.support.raw_client import RawClient

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
API_VERSIONS, PRODUCE, METADATA, END_TXN, INIT_PRODUCER_ID = 18, 0, 3, 26, 22

# The newest version of each API that a real client sends.
NEEDED = {
    PRODUCE: 12,
    1: 12,
    2: 7,
    METADATA: 12,
    8: 8,
    9: 8,
    10: 4,
    11: 7,
    12: 4,
    13: 4,
    14: 5,
    15: 5,
    16: 4,
    API_VERSIONS: 3,
    19: 7,
    20: 6,
    21: 2,
    INIT_PRODUCER_ID: 5,
    23: 4,
    24: 3,
    25: 3,
    END_TXN: 5,
    27: 1,
    28: 5,
    32: 4,
    37: 3,
    42: 2,
    44: 1,
    60: 0,
    61: 0,
    65: 0,
    66: 1,
}


def api_versions(**changes: object) -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(**({"client_software_name": "test", "client_software_version": "1.0"} | changes))


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request_bytes(api_key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">hhih", api_key, version, correlation_id, -1) + body)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_each_version_of_api_versions_lists_required_apis(client: RawClient, version: int):
    answer = client.send(api_versions(), version)
    assert answer.error_code == 0
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert {key for key, newest in NEEDED.items() if not served[key][0] <= newest <= served[key][1]} == set()
    # librdkafka before 2.8 gives up on a broker that does not list Produce from 0.
    assert served[PRODUCE][0] == 0
    # No broker supports two-phase commit by an external coordinator yet.
    assert served[INIT_PRODUCER_ID][1] == 5


def test_unknown_api_versions_version_is_answered_in_version_0(client: RawClient):
    client.send_bytes(request_bytes(API_VERSIONS, 99, 7, b"\x00\x02x\x02y\x00"))
    answer = client.read_frame()
    correlation_id, error, count = struct.unpack(">ihi", answer[:10])
    entries = [struct.unpack(">hhh", answer[start : start + 6]) for start in range(10, 10 + 6 * count, 6)]
    assert (correlation_id, error) == (7, UNSUPPORTED_VERSION)
    assert len(answer) == 10 + 6 * count
    assert API_VERSIONS in {key for key, _, _ in entries}
    # The connection stays open, because the client sends the request again.
    assert client.send(api_versions(), 3).error_code == 0


# Rule J.3/3.
@pytest.mark.parametrize("name", ["", "bad name", "-bad"])
def test_client_software_name_must_be_valid(client: RawClient, name: str):
    client.post(api_versions(client_software_name=name), 3)
    correlation_id, error = struct.unpack(">ih", client.read_frame()[:6])
    assert (correlation_id, error) == (1, INVALID_REQUEST)


# Rule J.3/11.
def test_client_of_another_cluster_or_node_has_to_bootstrap_again(client: RawClient):
    here = client.send(m.DescribeClusterRequest(), 0).cluster_id

    def error(cluster_id: str | None, node_id: int) -> int:
        client.post(api_versions(cluster_id=cluster_id, node_id=node_id), 5)
        return int(struct.unpack(">h", client.read_frame()[4:6])[0])

    assert error(here, 1) == 0
    assert error(None, -1) == 0
    assert error(here, 2) == error("another", 1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert error(here, -1) == error(None, 1) == INVALID_REQUEST


def test_requests_are_answered_in_order(client: RawClient):
    for correlation_id in range(20):
        client.send_bytes(request_bytes(API_VERSIONS, 0, correlation_id))
    answers = [struct.unpack(">i", client.read_frame()[:4])[0] for _ in range(20)]
    assert answers == list(range(20))


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("a size below zero", struct.pack(">i", -5)),
        ("a size beyond all bounds", struct.pack(">i", 2**31 - 1)),
        ("an unknown API", request_bytes(9999, 0, 1)),
        ("a version that is not served", request_bytes(METADATA, 99, 1)),
        ("a header cut short", frame(b"\x00\x12")),
        ("a body cut short", request_bytes(METADATA, 1, 1, b"\x00")),
        ("a length beyond the frame", request_bytes(METADATA, 1, 1, struct.pack(">i", 2**31 - 1))),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ],
)
def test_malformed_request_closes_only_its_connection(kafka: Kafka, client: RawClient, what: str, data: bytes):
    with RawClient(kafka.bootstrap_servers) as vandal:
        vandal.send_bytes(data)
        assert vandal.is_closed_by_peer(), what
    assert client.send(api_versions(), 3).error_code == 0


@pytest.mark.parametrize("version", list(range(13)))
def test_metadata_is_served_in_every_version(kafka: Kafka, client: RawClient, version: int):
    topic = make_topic(kafka, partitions=2)
    answer = client.send(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
        version,
    )
    (described,) = answer.topics
    assert (described.error_code, described.name) == (0, topic)
    assert sorted(part.partition_index for part in described.partitions) == [0, 1]
    assert [f"{node.host}:{node.port}" for node in answer.brokers] == [kafka.bootstrap_servers]


@pytest.mark.parametrize("version", list(range(7)))
@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinators_are_found_in_every_version(client: RawClient, kafka: Kafka, version: int, key_type: int):
    if version == 0 and key_type == 1:
        pytest.skip("version 0 knows groups only")
    answer = client.send(FindCoordinatorRequest(key="some", key_type=key_type, coordinator_keys=["some"]), version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, f"{found.host}:{found.port}") == (0, kafka.bootstrap_servers)


@pytest.mark.parametrize("version", list(range(6)))
def test_end_txn_is_served_in_every_version(client: RawClient, version: int):
    answer = client.send(EndTxnRequest(transactional_id="", producer_id=1, producer_epoch=0, committed=True), version)
    assert answer.error_code == INVALID_REQUEST
