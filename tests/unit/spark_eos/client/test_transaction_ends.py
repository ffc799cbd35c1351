"""What a response to EndTxn says of the end, and of the producer's next transaction."""

from types import SimpleNamespace

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity
from spark_eos.client.coordinator_requests import CoordinatorAnswer
from spark_eos.client.transactions import _end_answer
from spark_eos.open_transaction import EndAnswer

HELD, NEXT, NONE = ProducerIdentity(7, 3), ProducerIdentity(7, 4), ProducerIdentity(-1, -1)


@pytest.mark.parametrize(
    ("code", "given", "by_tv2", "answer"),
    [
        (0, NEXT, True, EndAnswer(ErrorCode.NONE, NEXT)),
        (0, NONE, True, EndAnswer(ErrorCode.NONE)),
        (0, NONE, False, EndAnswer(ErrorCode.NONE, HELD)),
        (48, NONE, True, EndAnswer(ErrorCode.INVALID_TXN_STATE)),
        (48, NONE, False, EndAnswer(ErrorCode.INVALID_TXN_STATE)),
        (9999, NEXT, True, EndAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)),
    ],
)
def test_only_a_success_has_a_next_identity(
    code: int, given: ProducerIdentity, by_tv2: bool, answer: EndAnswer
) -> None:
    response = SimpleNamespace(producer_id=given.producer_id, producer_epoch=given.producer_epoch)
    assert _end_answer(HELD, CoordinatorAnswer(response, code, 1), by_tv2) == answer


@pytest.mark.parametrize("by_tv2", [True, False])
def test_no_final_response_is_no_outcome(by_tv2: bool) -> None:
    assert _end_answer(HELD, 14, by_tv2) == EndAnswer(None)
