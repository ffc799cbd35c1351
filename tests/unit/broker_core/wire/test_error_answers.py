"""Each request can be answered with one error in its API's own form, at every served version."""

from uuid import UUID

import pytest

from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode
from broker_core.wire.error_responses import error_response
from broker_core.wire.framing import decode_request, encode_response
from tests.support.broker_core.answers import error_codes
from tests.support.broker_core.full_requests import GROUP, ID, TOPIC, VERSIONS, full_requests

TOPIC_ID = UUID(int=7)


def request_of(name, version):
    request = full_requests(version, TOPIC_ID)[name]()
    request.API_VERSION = version
    request.with_header(correlation_id=5, client_id="c")
    return decode_request(bytes(request.encode(header=True, framed=False)), SERVED)


def answered(name, version, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """Encode the error response and decode it as a client does."""
    request = request_of(name, version)
    (data,) = encode_response(request, error_response(request, code))
    if name == "ApiVersions":
        # kafka-python reads every refusal of ApiVersions as version 0, which is correct for only one of them.
        return SERVED[request.api.key].response.decode(data[8:10] + b"\0" * 4, version=0, header=False, framed=False)
    return SERVED[request.api.key].response.decode(data, version=version, header=True, framed=True)


@pytest.mark.parametrize("name", VERSIONS)
def test_error_response_has_the_schema_of_its_request(name):
    for version in VERSIONS[name]:
        answer = answered(name, version)
        # An empty list has no place for an error code; the request names items, so the response has one.
        expected = {ErrorCode.UNKNOWN_SERVER_ERROR}
        if name == "DescribeLogDirs" and version < 3:
            # It has no place for an error but the folders that it does not describe, as in Kafka.
            assert answer.results == []
            expected = set()
        assert {code for code in error_codes(answer.to_dict()) if code} == expected, (version, answer)


def test_error_response_names_the_requested_items():
    produced = answered("Produce", 9)
    (topic,) = produced.responses
    assert (topic.name, [part.index for part in topic.partition_responses]) == (TOPIC, [0])
    assert produced.responses[0].partition_responses[0].base_offset == -1
    assert answered("Produce", 13).responses[0].topic_id == TOPIC_ID
    assert answered("FindCoordinator", 6).coordinators[0].key == GROUP
    assert answered("DescribeTransactions", 0).transaction_states[0].transactional_id == ID
    markers = answered("WriteTxnMarkers", 1).markers
    assert (markers[0].producer_id, markers[0].topics[0].name) == (5, TOPIC)
    assert markers[0].topics[0].partitions[0].partition_index == 0
    added = answered("AddPartitionsToTxn", 3).results_by_topic_v3_and_below[0]
    assert (added.name, added.results_by_partition[0].partition_index) == (TOPIC, 0)
    moved = answered("AlterReplicaLogDirs", 2).results[0]
    assert (moved.topic_name, moved.partitions[0].partition_index) == (TOPIC, 0)
    elected = answered("ElectLeaders", 2).replica_election_results[0]
    assert (elected.topic, elected.partition_result[0].partition_id) == (TOPIC, 0)
    assert answered("DeleteTopics", 6).responses[0].name == answered("DeleteTopics", 1).responses[0].name == TOPIC


def test_top_level_error_is_not_repeated_per_item():
    assert answered("OffsetFetch", 5).topics == []
    assert answered("OffsetFetch", 1).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answered("OffsetFetch", 8).groups[0].topics == []
    assert answered("AddPartitionsToTxn", 4).results_by_transaction == []
    assert answered("Fetch", 13).responses == []
    assert answered("Fetch", 12).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (answered("EndTxn", 5).producer_id, answered("EndTxn", 5).producer_epoch) == (-1, -1)
