"""Check the harness itself: a judge that sees nothing, or a wire that loses nothing, would let every crash pass."""

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from kafka.protocol.producer import InitProducerIdRequest

from broker_core.embedded import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.inspection import TransactionDescription
from tests.conformance.raw_session import RawSession
from tests.crash.case import Case
from tests.crash.hanging import Hanging, Open, end_hanging, fate, find_hanging
from tests.crash.judge import Records, history
from tests.crash.processes import send, tree
from tests.crash.wire import Loss, Wire
from tests.crash.world import World
from tests.history.checker import check
from tests.spark_eos.sink_topic import open_transactions
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

INIT_PRODUCER_ID = 22


def _write(address: str, case: Case, lines: list[str], *, ends: bool = True) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{case.prefix}.writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for line in lines:
        producer.produce(case.topic, line, partition=len(line) % 2)
    producer.flush(60)
    if ends:
        producer.commit_transaction(60)
    return producer


def _all(case: Case) -> list[str]:
    return list(case.expected)


@pytest.mark.parametrize(("lines", "verdict"), [
    (_all, None),
    (lambda case: _all(case)[1:], "1 rows lost"),
    (lambda case: [*_all(case), _all(case)[3]], "1 too many"),
    (lambda case: _all(case)[::-1], "earlier micro-batch after a later one"),
])
def test_the_judge_sees_what_is_wrong(here: World, lines: Callable[[Case], list[str]], verdict: str | None) -> None:
    case = here.new_case()
    _write(here.broker.address, case, lines(case))
    found = here.judge([case])
    assert found == [] if verdict is None else (len(found) == 1 and verdict in found[0])


@pytest.mark.parametrize(("read", "kinds"), [
    ({0: [(0, "a"), (1, "b")], 1: [(4, "c")]}, []),
    ({0: [(0, "a"), (1, "b")]}, ["unseen"]),
    ({0: [(0, "a"), (1, "b"), (2, "a")], 1: [(4, "c")]}, ["duplicate"]),
    ({0: [(1, "b"), (0, "a")], 1: [(4, "c")]}, ["nonmonotonic-poll"]),
])
def test_the_story_of_a_wave_is_judged(read: Records, kinds: list[str]) -> None:
    assert [str(anomaly.kind) for anomaly in check(history("t", ["a", "b", "c"], read))] == kinds


def test_the_judge_sees_what_is_open(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.crash.judge.SETTLE_DEADLINE_S", 1)
    case, other = here.new_cases(2)
    _write(here.broker.address, other, _all(other))
    producer = _write(here.broker.address, case, _all(case), ends=False)
    [wrong] = here.judge([case, other])
    assert wrong == f"{case.topic}: transaction {case.prefix}.writer is left open"
    producer.commit_transaction(60)
    assert here.judge([case, other]) == []


def test_the_wire_loses_the_answer_to_what_was_applied(here: World) -> None:
    # A coordinator exists once it was asked for.
    Producer({"bootstrap.servers": here.broker.address, "transactional.id": "first"}).init_transactions(60)
    wire = Wire(here.broker.address)
    loss = Loss(INIT_PRODUCER_ID, (b"lossy",), without=b"other")
    wire.losses.append(loss)

    def epoch(name: str) -> int:
        with RawClient(wire.address) as client:
            return int(client.send(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
                       .producer_epoch)

    try:
        assert epoch("lossy-other") >= 0
        with pytest.raises(ConnectionError):
            epoch("lossy")
        assert loss.lost == 1
        assert epoch("lossy") == 1
    finally:
        wire.close()


def test_a_killed_broker_comes_back_with_what_was_written(here: World) -> None:
    case = here.new_case()
    address = here.broker.address
    _write(address, case, _all(case))
    here.broker.kill()
    here.broker.start()
    assert here.broker.address == address
    assert here.judge([case]) == []


def test_a_tree_of_processes_is_found_and_ended() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as parent:
        family = wait_until(lambda: tree(parent.pid) if len(tree(parent.pid)) == 2 else None, "both run")
        send(reversed(family), signal.SIGKILL)
        parent.wait(60)
        wait_until(lambda: tree(family[1].pid) == [], "the child is gone")


def test_what_hangs_is_found_and_ended_and_what_is_open_is_left_alone() -> None:
    with EmbeddedBroker(topics={"t": 2}, config=HANGING_SETTINGS) as broker:
        address = broker.bootstrap_servers
        with RawClient(address) as first, RawClient(address) as second:
            living, late = RawSession(first, "living"), RawSession(second, "late")
            open_up(living, "t", 1)
            identity = hang(late, "t")
        place = Open(TopicPartition("t", 0), identity.producer_id, identity.producer_epoch, 2)
        assert find_hanging(address) == [Hanging(place, 0, "late", "CompleteCommit", commit=True)]
        assert [each.place for each in end_hanging(address)] == [place]
        assert find_hanging(address) == []
        assert open_transactions(address, "") == ["living"]


@pytest.mark.parametrize(("state", "epochs_later", "commit"), [
    ("CompleteCommit", 0, True), ("CompleteCommit", 1, True), ("CompleteAbort", 1, False), ("Empty", 0, False),
    # Of the transaction after it.
    ("CompleteCommit", 2, None), ("CompleteAbort", 3, None),
])
def test_the_fate_of_what_hangs_is_its_own(state: str, epochs_later: int, commit: bool | None) -> None:
    place = Open(TopicPartition("t", 0), producer_id=7, producer_epoch=4, first_offset=0)
    assert fate(place, TransactionDescription("id", 0, state, 7, 4 + epochs_later, 60_000, -1, ())) is commit
