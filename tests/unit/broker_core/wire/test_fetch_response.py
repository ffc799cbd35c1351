"""The Fetch response's own encoder against Kafka's schema, byte for byte."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker_core.types import AbortedTransaction
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_codes
from broker_core.wire.fetch_response import FetchedPartition, FetchedRecords, FetchedTopic, encode_fetch_response
from broker_core.wire.layout import answer_has_tags

VERSIONS = range(4, 19)
FIRST_WITH_IDS = 13
INTS = st.integers(-(2**31), 2**31 - 1)
SHORTS = st.integers(-(2**15), 2**15 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.one_of(
    st.binary(max_size=300),
    st.integers(0, 20_000).map(lambda size: bytes([size % 251]) * size),
    st.integers(0, 20_000).map(lambda size: memoryview(bytes(size + 7))[:size]),
)
PARTITIONS = st.builds(
    FetchedPartition,
    INTS,
    SHORTS,
    LONGS,
    LONGS,
    LONGS,
    st.none() | st.lists(st.builds(AbortedTransaction, LONGS, LONGS), max_size=200),
    RECORDS,
    st.none() | st.tuples(INTS, LONGS),
)


def responses(names: st.SearchStrategy[str] | st.SearchStrategy[UUID | None]) -> st.SearchStrategy[FetchedRecords]:
    topics = st.builds(FetchedTopic, names, st.lists(PARTITIONS, max_size=4))
    return st.builds(FetchedRecords, SHORTS, INTS, st.lists(topics, max_size=3), INTS)


def by_schema(response: FetchedRecords, version: int, correlation_id: int) -> bytes:
    """Encode the response with kafka-python's classes."""
    kind = m.FetchResponse
    partition_kind = kind.FetchableTopicResponse.PartitionData
    topics = []
    for topic in response.responses:
        partitions = []
        for each in topic.partitions:
            tagged = {}
            if each.diverging_epoch is not None and version >= 12:
                epoch, end_offset = each.diverging_epoch
                tagged["diverging_epoch"] = partition_kind.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            aborted = each.aborted_transactions
            partitions.append(
                partition_kind(
                    partition_index=each.partition_index,
                    error_code=each.error_code,
                    high_watermark=each.high_watermark,
                    last_stable_offset=each.last_stable_offset,
                    log_start_offset=each.log_start_offset,
                    aborted_transactions=None
                    if aborted is None
                    else [
                        partition_kind.AbortedTransaction(
                            producer_id=entry.producer_id, first_offset=entry.first_offset
                        )
                        for entry in aborted
                    ],
                    records=bytes(each.records),
                    **tagged,
                )
            )
        name = {"topic_id" if version >= FIRST_WITH_IDS else "topic": topic.topic}
        topics.append(kind.FetchableTopicResponse(**name, partitions=partitions))
    schema = kind(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        responses=topics,
    )
    body = schema.encode(version=version)
    header = correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if answer_has_tags(schema, version) else b"")
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


@given(version=st.sampled_from(VERSIONS), correlation_id=INTS, data=st.data())
def test_a_fetch_response_has_the_bytes_of_the_schema(version: int, correlation_id: int, data: st.DataObject) -> None:
    names = st.none() | st.uuids() if version >= FIRST_WITH_IDS else st.text(max_size=300)
    response = data.draw(responses(names))
    frame = b"".join(encode_fetch_response(response, version, correlation_id))
    assert frame == by_schema(response, version, correlation_id)


@given(responses(st.text(max_size=5)), st.sampled_from(VERSIONS))
def test_the_error_codes_of_a_fetch_response_are_found(response: FetchedRecords, version: int) -> None:
    codes = [each.error_code for topic in response.responses for each in topic.partitions]
    expected = [response.error_code, *codes] if version >= 7 else codes
    assert list(error_codes(response, version)) == expected


def test_records_are_not_copied() -> None:
    records = [bytes(100_000), memoryview(bytes(50_000))[:20_000]]
    partitions = [FetchedPartition(index, records=each) for index, each in enumerate(records)]
    frame = encode_fetch_response(FetchedRecords(responses=[FetchedTopic("t", partitions)]), 11, 1)
    assert [part for part in frame if len(part) >= 20_000] == records
    assert all(any(part is each for part in frame) for each in records)
