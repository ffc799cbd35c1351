"""The hand-written codecs of messages beside kafka-python's, in one run: `python -m tests.benchmarks.bench_messages`.

A codec that is not at least twice as fast, or saves less than a microsecond of a frequent message, does not pay for
its lines.
"""

import timeit
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from broker_core.broker.apis import SERVED
from broker_core.records.batch import NewRecord, build_batch
from broker_core.wire import messages as m
from broker_core.wire.fetch_response import FetchedPartition, FetchedRecords, FetchedTopic, encode_fetch_response
from broker_core.wire.framing import encode_api_versions_response
from broker_core.wire.layout import check_body
from broker_core.wire.plain_produce import (
    encode_end_txn_response,
    encode_produce_response,
    read_end_txn_request,
    read_produce_request,
)
from spark_eos.client.response_decoders import FilteredMetadataRequest, UncopiedFetchRequest

_REPEATS = 100
_CALLS = 10
_ID = UUID(int=7)


class Case(NamedTuple):
    """One message, and the two ways to read or write it."""

    name: str
    by_hand: Callable[[], object]
    by_library: Callable[[], object]


def cases() -> Iterator[Case]:
    """Make the messages."""
    for partitions, size in ((1, 100), (10, 1_600), (1, 500_000)):
        batch = build_batch([NewRecord(None, b"x" * size)], base_offset=0)
        yield from _produce(partitions, bytes(batch))
        yield from _fetch(partitions, bytes(batch))
    yield from _end_txn()
    ranges = [api.advertised() for api in SERVED.values()]
    versions = m.ApiVersionsResponse(
        error_code=0, api_keys=ranges, throttle_time_ms=0, finalized_features_epoch=3, supported_features=[]
    )
    yield Case(
        "ApiVersions response",
        lambda: encode_api_versions_response(versions, 3),
        lambda: versions.encode(version=3),
    )
    for topics in (1, 1_000):
        yield _metadata(topics)


def _produce(partitions: int, batch: bytes) -> Iterator[Case]:
    topic = m.ProduceRequest.TopicProduceData
    request = m.ProduceRequest(
        transactional_id="id",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            topic(
                topic_id=_ID,
                partition_data=[topic.PartitionProduceData(index=i, records=batch) for i in range(partitions)],
            )
        ],
    )
    body = request.encode(version=13)
    about = f"{partitions} x {len(batch)} bytes"
    yield Case(
        f"Produce request, {about}",
        lambda: read_produce_request(body, 0, 13),
        lambda: _checked(m.ProduceRequest, body, 13),
    )
    form = m.ProduceResponse.TopicProduceResponse
    results = [
        form.PartitionProduceResponse(
            index=i, error_code=0, base_offset=5, log_append_time_ms=-1, log_start_offset=0, record_errors=[]
        )
        for i in range(partitions)
    ]
    response = m.ProduceResponse(responses=[form(topic_id=_ID, partition_responses=results)], throttle_time_ms=0)
    if len(batch) < 1_000 or partitions > 1:
        yield Case(
            f"Produce response, {partitions} partitions",
            lambda: encode_produce_response(response, 13),
            lambda: response.encode(version=13),
        )


def _fetch(partitions: int, batch: bytes) -> Iterator[Case]:
    about = f"{partitions} x {len(batch)} bytes"
    ours = FetchedRecords(
        responses=[FetchedTopic(_ID, [FetchedPartition(i, 0, 9, 9, 0, [], batch) for i in range(partitions)])]
    )
    form = m.FetchResponse.FetchableTopicResponse
    parts = [
        form.PartitionData(
            partition_index=i,
            error_code=0,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=[],
            preferred_read_replica=-1,
            records=batch,
        )
        for i in range(partitions)
    ]
    theirs = m.FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[form(topic_id=_ID, partitions=parts)]
    )
    yield Case(
        f"Fetch response, {about}", lambda: encode_fetch_response(ours, 16, 1), lambda: theirs.encode(version=16)
    )
    body = memoryview(theirs.encode(version=16))
    reader = UncopiedFetchRequest()
    yield Case(
        f"Fetch response read, {about}",
        lambda: reader.read_response(16, body),
        lambda: _checked(m.FetchResponse, body, 16),
    )


def _end_txn() -> Iterator[Case]:
    body = m.EndTxnRequest(transactional_id="id-0", producer_id=7, producer_epoch=1, committed=True).encode(version=5)
    yield Case("EndTxn request", lambda: read_end_txn_request(body, 0, 5), lambda: _checked(m.EndTxnRequest, body, 5))
    response = m.EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=2)
    yield Case("EndTxn response", lambda: encode_end_txn_response(response, 5), lambda: response.encode(version=5))


def _metadata(topics: int) -> Case:
    form = m.MetadataResponse.MetadataResponseTopic
    part = form.MetadataResponsePartition
    response = m.MetadataResponse(
        throttle_time_ms=0,
        brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)],
        cluster_id="c",
        controller_id=1,
        topics=[
            form(
                error_code=0,
                name=f"topic-{number}",
                topic_id=_ID,
                is_internal=False,
                partitions=[
                    part(
                        error_code=0,
                        partition_index=index,
                        leader_id=1,
                        leader_epoch=0,
                        replica_nodes=[1],
                        isr_nodes=[1],
                        offline_replicas=[],
                    )
                    for index in range(4)
                ],
                authorized_operations=None,
            )
            for number in range(topics)
        ],
    )
    body = memoryview(response.encode(version=12))
    reader = FilteredMetadataRequest(None, lambda name: name == "topic-0")
    return Case(
        f"Metadata response read, {topics} topics",
        lambda: reader.read_response(12, body),
        lambda: _checked(m.MetadataResponse, body, 12),
    )


def _checked(kind: Any, body: bytes | memoryview, version: int) -> object:
    """Read a message as broker and client do where no other reader is: with the check of its layout."""
    check_body(kind, version, memoryview(body))
    return kind.decode(body, version=version)


def main() -> None:
    """Print a table."""
    print("| message | by hand, µs | kafka-python, µs | times |")
    print("|---|---|---|---|")
    for case in cases():
        hand, library = _microseconds(case.by_hand, case.by_library)
        print(f"| {case.name} | {hand:.1f} | {library:.1f} | {library / hand:.1f} |")


def _microseconds(*ways: Callable[[], object]) -> list[float]:
    """Take the ways in turns, so that a busy machine slows all of them, and return the best time of each."""
    best = [float("inf")] * len(ways)
    for _ in range(_REPEATS):
        for index, way in enumerate(ways):
            best[index] = min(best[index], timeit.timeit(way, number=_CALLS) / _CALLS * 1_000_000)
    return best


if __name__ == "__main__":
    main()
