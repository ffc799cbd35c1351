"""What is read and written by hand for Produce and EndTxn is what the schema says: so there may be two readers."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire import messages as m
from broker_core.wire.layout import check_body
from broker_core.wire.plain_produce import (
    encode_end_txn_response,
    encode_produce_response,
    read_end_txn_request,
    read_produce_request,
)

BY_HAND = range(9, 14)
VERSIONS = st.integers(3, 13)
NAMES = st.one_of(st.text(max_size=5), st.text("ab", min_size=120, max_size=300))
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
RECORDS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=127, max_size=129), st.just(b"r" * 20_000))
UUIDS = st.one_of(st.just(UUID(int=0)), st.uuids())

Topic = m.ProduceRequest.TopicProduceData
AnsweredTopic = m.ProduceResponse.TopicProduceResponse
Answer = AnsweredTopic.PartitionProduceResponse

partitions = st.builds(Topic.PartitionProduceData, index=INT32, records=RECORDS)
topics = st.builds(Topic, name=NAMES, topic_id=UUIDS, partition_data=st.lists(partitions, max_size=3))
requests = st.builds(
    m.ProduceRequest,
    transactional_id=st.one_of(st.none(), NAMES),
    acks=st.integers(-(2**15), 2**15 - 1),
    timeout_ms=INT32,
    topic_data=st.lists(topics, max_size=3),
)
answers = st.builds(
    Answer,
    index=INT32,
    error_code=st.just(0),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.just([]),
)
refusals = st.builds(
    Answer,
    index=INT32,
    error_code=st.integers(0, 100),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.lists(st.builds(Answer.BatchIndexAndErrorMessage, batch_index=INT32), max_size=2),
    error_message=st.one_of(st.none(), NAMES),
)


def responses(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    answered = st.builds(AnsweredTopic, name=NAMES, topic_id=UUIDS, partition_responses=st.lists(parts, max_size=3))
    return st.builds(m.ProduceResponse, responses=st.lists(answered, max_size=3), throttle_time_ms=INT32)


IDS = st.one_of(st.text(max_size=5), st.text("ab", min_size=120, max_size=300))
INT16 = st.integers(-(2**15), 2**15 - 1)
ends = st.builds(
    m.EndTxnRequest, transactional_id=IDS, producer_id=INT64, producer_epoch=INT16, committed=st.booleans()
)
ended = st.builds(m.EndTxnResponse, throttle_time_ms=INT32, error_code=INT16, producer_id=INT64, producer_epoch=INT16)


class Read(NamedTuple):
    """A request that is read by hand, the function for it, and the versions it reads of those there are."""

    form: Any
    requests: st.SearchStrategy[Any]
    read: Callable[[bytes, int, int], Any]
    by_hand: range
    versions: range

    def by_schema(self, body: bytes, version: int) -> Any:
        check_body(self.form, version, memoryview(body))
        return self.form.decode(memoryview(body), version=version)


READ = [
    Read(m.ProduceRequest, requests, read_produce_request, BY_HAND, range(3, 14)),
    Read(m.EndTxnRequest, ends, read_end_txn_request, range(3, 6), range(6)),
]
both = pytest.mark.parametrize("what", READ, ids=lambda what: what.form.__name__)


@both
@given(st.data(), st.binary(max_size=5))
def test_both_readers_read_the_same(what: Read, data: st.DataObject, header: bytes) -> None:
    request, version = data.draw(what.requests), data.draw(st.sampled_from(what.versions))
    body = bytes(request.encode(version=version))
    found = what.read(header + body, len(header), version)
    topics = getattr(request, "topic_data", ())
    has_null = any(part.records is None for topic in topics for part in topic.partition_data)
    assert (found is None) == (has_null or version not in what.by_hand)
    if found is not None:
        assert found == what.by_schema(body, version)
        assert found.to_dict() == what.by_schema(body, version).to_dict()
        # The reader that knows only the plain form gives the log bytes of its own, which the log writes to.
        topics = getattr(found, "topic_data", ())
        assert all(type(part.records) is bytearray for topic in topics for part in topic.partition_data)


@both
@given(st.data())
def test_damaged_bytes_are_never_read_in_another_way(what: Read, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(what.by_hand))
    body = bytearray(data.draw(what.requests).encode(version=version))
    for _ in range(data.draw(st.integers(0, 3))):
        # Lengths and counts are near the beginning.
        place = data.draw(st.integers(0, min(len(body) - 1, 80)))
        body[place] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    found = what.read(bytes(body), 0, version)
    if found is not None:
        assert found == what.by_schema(bytes(body), version)


@pytest.mark.parametrize("version", range(3, 6))
def test_tags_nulls_and_long_ids_are_left_to_the_schema(version: int) -> None:
    def encoded(transactional_id: str) -> bytes:
        request = m.EndTxnRequest(transactional_id=transactional_id, producer_id=1, producer_epoch=1, committed=True)
        return bytes(request.encode(version=version))

    # A body ends with the number of its tagged fields, and begins with the length of the id.
    assert read_end_txn_request(encoded("id"), 0, version) is not None
    assert read_end_txn_request(encoded("id")[:-1] + b"\x01\x09\x01x", 0, version) is None
    assert read_end_txn_request(b"\0" + encoded("")[1:], 0, version) is None
    assert read_end_txn_request(encoded("i" * (1 << 15)), 0, version) is None


@given(ended, st.integers(0, 5))
def test_an_end_is_answered_by_hand_as_by_the_schema(response: Any, version: int) -> None:
    written = encode_end_txn_response(response, version)
    assert (written is not None) == (version in range(3, 6))
    if written is not None:
        assert written == bytes(response.encode(version=version))


@pytest.mark.parametrize("version", BY_HAND)
def test_tagged_fields_and_long_strings_are_left_to_the_schema(version: int) -> None:
    plain = bytes(m.ProduceRequest(acks=1, timeout_ms=1, topic_data=[], transactional_id=None).encode(version=version))
    # A body ends with the number of its tagged fields.
    assert read_produce_request(plain[:-1] + b"\x01\x09\x01x", 0, version) is None
    long = m.ProduceRequest(acks=1, timeout_ms=1, topic_data=[], transactional_id="i" * (1 << 15))
    assert read_produce_request(bytes(long.encode(version=version)), 0, version) is None


@pytest.mark.parametrize("version", BY_HAND)
def test_an_array_that_is_null_is_left_to_the_schema(version: int) -> None:
    topic = Topic(name="t", topic_id=UUID(int=1), partition_data=[])
    body = bytes(
        m.ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic], transactional_id=None).encode(version=version)
    )
    topics_at, partitions_at = body.index(b"\x02"), len(body) - 3
    for place in (topics_at, partitions_at):
        assert read_produce_request(body, 0, version) is not None
        assert read_produce_request(body[:place] + b"\0" + body[place + 1 :], 0, version) is None


@given(responses(answers), VERSIONS)
def test_a_response_without_errors_is_written_by_hand_as_by_the_schema(response: Any, version: int) -> None:
    written = encode_produce_response(response, version)
    assert (written is not None) == (version in BY_HAND)
    if written is not None:
        assert written == bytes(response.encode(version=version))


@given(responses(refusals), st.sampled_from(BY_HAND))
def test_a_response_with_errors_is_the_schemas(response: Any, version: int) -> None:
    written = encode_produce_response(response, version)
    assert written is None or written == bytes(response.encode(version=version))


@pytest.mark.parametrize("version", range(10, 14))
def test_a_hint_at_the_leader_is_the_schemas(version: int) -> None:
    hint = Answer(
        index=0,
        error_code=0,
        base_offset=1,
        log_append_time_ms=2,
        log_start_offset=3,
        record_errors=[],
        current_leader=Answer.LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
    )
    response = m.ProduceResponse(responses=[AnsweredTopic(name="t", topic_id=None, partition_responses=[hint])])
    assert encode_produce_response(response, version) is None
    endpoints = m.ProduceResponse(responses=[], node_endpoints=[])
    assert encode_produce_response(endpoints, version) is None
