"""Every action at every moment: one row for each, with the client's response and the outcome of its transaction."""

import sys
import threading
from contextlib import nullcontext
from typing import Final, NamedTuple

import pytest

from broker_core import Delay, Disconnect, Drop, EmbeddedBroker, Error, Hold, RequestSeen
from broker_core.errors import ErrorCode
from tests.support.broker_core.fault_steps import ID, begun
from tests.support.raw_client import RawClient

BUSY: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
CLOSED, NOTHING = "closed", "nothing"
ONGOING, COMMITTED = "Ongoing", "CompleteCommit"


class Row(NamedTuple):
    """The response to an EndTxn under a fault, and the state of its transaction after it."""

    when: str
    action: str
    answer: ErrorCode | str
    state: str


ANSWERS: Final = {
    "error": BUSY,
    "delay": ErrorCode.NONE,
    "drop": NOTHING,
    "disconnect": CLOSED,
    "hold": ErrorCode.NONE,
    "call": ErrorCode.NONE,
    "raise": CLOSED,
    "exit": CLOSED,
}
# With "mid", EndTxn already has its response, and the coordinator writes a failed marker again a little later.
ROWS: Final = tuple(
    Row(
        when,
        action,
        ErrorCode.NONE if when == "mid" else answer,
        ONGOING if when == "before" and answer != ErrorCode.NONE else COMMITTED,
    )
    for when in ("before", "after_apply", "mid")
    for action, answer in ANSWERS.items()
)


def _raise(seen: RequestSeen) -> None:
    raise AssertionError(f"{seen.api} was not expected")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.when}-{row.action}")
def test_every_action_works_at_every_moment(row: Row) -> None:
    may_go, called = threading.Event(), threading.Event()
    busy = Error("NOT_LEADER_OR_FOLLOWER" if row.when == "mid" else BUSY.name)
    action = {
        "error": busy,
        "delay": Delay(0.05),
        "drop": Drop(),
        "disconnect": Disconnect(),
        "hold": Hold(may_go),
        "call": lambda _: called.set(),
        "raise": _raise,
        "exit": sys.exit,
    }[row.action]
    with EmbeddedBroker(topics={"in": 2}) as kafka, RawClient(kafka.bootstrap_servers) as client:
        kafka.move_coordinator(1, transactional_id=ID)
        end = begun(client, (0, 1))
        fault = kafka.fault(api="EndTxn", transactional_id=ID, when=row.when, action=action, times=1)
        client.post(end, 5)
        kafka.wait_for(lambda: fault.hits == 1)
        if row.action == "hold":
            before = ONGOING if row.when == "before" else COMMITTED if row.when == "after_apply" else "PrepareCommit"
            kafka.wait_for(lambda: kafka.transaction(ID).state == before)
            answered = [seen.outcome for seen in kafka.requests(api="EndTxn")]
            assert row.when == "mid" or answered == ["no answer"], "a response came although it is held"
            may_go.set()
        if row.answer == CLOSED:
            assert client.is_closed_by_peer()
        elif row.answer == NOTHING:
            kafka.wait_for(lambda: [seen.outcome for seen in kafka.requests(api="EndTxn")] == ["dropped by a fault"])
        else:
            assert client.collect(end).error_code == row.answer
        assert called.is_set() == (row.action == "call")
        kafka.wait_for(lambda: kafka.transaction(ID).state == row.state)
        marks = [kafka.partition("in", each) for each in (0, 1)]
        assert [each.last_stable_offset for each in marks] == ([0, 0] if row.state == ONGOING else [2, 2])
        # What the function raised belongs to the test.
        raised = {"raise": AssertionError, "exit": SystemExit}.get(row.action)
        with pytest.raises(raised) if raised else nullcontext():
            fault.remove()
