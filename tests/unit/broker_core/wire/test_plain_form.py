"""The handlers fill in responses that have no fields; the schema writes them as those that its constructors make."""

from typing import Any
from uuid import UUID

import pytest

from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from broker_core.wire.compact_fields import blank, blank_response

Topic = m.ProduceResponse.TopicProduceResponse
REFUSED = Topic.PartitionProduceResponse(
    index=1,
    error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    base_offset=-1,
    log_append_time_ms=-1,
    log_start_offset=-1,
    record_errors=[],
    error_message="refused",
)
END_TXN_FIELDS = {"throttle_time_ms": 0, "error_code": 0, "producer_id": 5, "producer_epoch": 2}


def versions(request: Any) -> range:
    served = SERVED[int(request.API_KEY)]
    return range(served.min_version, served.max_version + 1)


def filled(message: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize("version", versions(m.EndTxnRequest))
def test_a_blank_end_txn_response_is_written_as_a_whole_one(version: int) -> None:
    written = filled(blank_response(m.EndTxnResponse), END_TXN_FIELDS).encode(version=version)
    assert written == m.EndTxnResponse(**END_TXN_FIELDS).encode(version=version)


@pytest.mark.parametrize("version", versions(m.ProduceRequest))
def test_a_blank_produce_response_is_written_as_a_whole_one(version: int) -> None:
    topic = {"name": "orders", "topic_id": UUID(int=7), "partition_responses": [REFUSED]}
    whole = m.ProduceResponse(responses=[Topic(**topic)], throttle_time_ms=3)
    written = filled(
        blank_response(m.ProduceResponse), {"responses": [filled(blank(Topic, None), topic)], "throttle_time_ms": 3}
    ).encode(version=version)
    assert written == whole.encode(version=version)
