"""The harness itself: a reader that sees nothing, or a proxy that loses nothing, would let every crash pass."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.protocol.producer import InitProducerIdRequest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.inspection import TransactionDescription
from tests.crash.case import Case
from tests.crash.decided import Producer as Producers
from tests.crash.decided import Verdicts, transactions, verdicts
from tests.crash.feed import Feed, Sent
from tests.crash.hanging import Hanging, Open, end_hanging, find_hanging, outcome_of
from tests.crash.judge import Records, history, read_committed
from tests.crash.streams import inputs_committed
from tests.crash.wire import Loss, Wire
from tests.crash.world import PARTITIONS, World
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.history.checker import check
from tests.support.history.format import INFO, OK
from tests.support.processes import send, tree
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.spark_eos.sink_topic import open_transactions
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


def _decide(here: World, case: Case) -> None:
    """Write the decision that names all transactions of a case."""
    wrote = transactions(here.broker.address, [case.topic], PARTITIONS)[case.topic]
    decision = {
        "prefix": case.prefix,
        "query": "query",
        "micro_batch": 0,
        "attempt": 1,
        "transactions": [each._asdict() for each in wrote],
    }
    producer = Producer({"bootstrap.servers": here.broker.address})
    producer.produce(case.more_options["decisionTopic"], json.dumps(decision))
    assert producer.flush(60) == 0


def _all(case: Case) -> list[str]:
    return list(case.expected)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (_all, None),
        (lambda case: _all(case)[1:], "1 row lost"),
        (lambda case: [*_all(case), _all(case)[3]], "1 too many"),
        (lambda case: _all(case)[::-1], "earlier micro-batch after a later one"),
    ],
)
def test_verifier_detects_wrong_output(here: World, lines: Callable[[Case], list[str]], verdict: str | None) -> None:
    case = here.new_case()
    _write(here.broker.address, case, lines(case))
    _decide(here, case)
    found = here.judge([case])
    assert found == [] if verdict is None else (len(found) == 1 and verdict in found[0])


def test_inputs_that_spark_read_together_may_alternate(here: World) -> None:
    case = here.new_case()
    _write(here.broker.address, case, _all(case)[::-1])
    _decide(here, case)
    (case.checkpoint / "offsets").mkdir(parents=True)
    (case.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"logOffset":1}')
    assert here.judge([case]) == []


def test_verifier_detects_undecided_rows(here: World) -> None:
    case = here.new_case()
    _write(here.broker.address, case, _all(case))
    [wrong] = here.judge([case])
    assert "80 anomalies, the first: G1a" in wrong
    _decide(here, case)
    assert here.judge([case]) == []


def test_verifier_detects_decided_rows_that_are_missing(here: World) -> None:
    case = here.new_case()
    _write(here.broker.address, case, _all(case))
    producer = _write(here.broker.address, case, _all(case), ends=False)
    producer.abort_transaction(60)
    _decide(here, case)
    [wrong] = here.judge([case])
    assert re.search(r"80 anomalies, the first: (unseen|lost-write)", wrong), wrong


ONE, TWO = Producers(1, 0), Producers(2, 0)
WRITTEN = {ONE: [("t-0", 0, "a"), ("t-0", 1, "b"), ("t-1", 4, "c")], TWO: [("t-0", 3, "a")]}


@pytest.mark.parametrize(
    ("ends", "read", "kinds"),
    [
        ({ONE: OK}, {0: [(0, "a"), (1, "b")], 1: [(4, "c")]}, []),
        ({ONE: OK}, {0: [(0, "a"), (1, "b")]}, ["torn-transaction"]),
        ({ONE: OK}, {}, ["unseen"] * 3),
        ({ONE: OK}, {0: [(0, "a"), (1, "b"), (3, "a")], 1: [(4, "c")]}, ["G1a"]),
        ({ONE: OK}, {0: [(1, "b"), (0, "a")], 1: [(4, "c")]}, ["nonmonotonic-poll"]),
        # Of an earlier attempt, readers may see all or nothing.
        ({ONE: OK, TWO: INFO}, {0: [(0, "a"), (1, "b")], 1: [(4, "c")]}, []),
        ({ONE: INFO, TWO: OK}, {0: [(3, "a")]}, []),
        ({ONE: INFO, TWO: OK}, {0: [(0, "a"), (1, "b"), (3, "a")]}, ["torn-transaction"]),
    ],
)
def test_wave_history_is_checked(ends: Verdicts, read: Records, kinds: list[str]) -> None:
    assert [str(anomaly.kind) for anomaly in check(history("t", WRITTEN, ends, read))] == kinds


def test_only_the_last_decision_on_a_micro_batch_is_certain() -> None:
    def decision(attempt: int, *producers: int, **more: Any) -> str:
        named = [{"producer_id": each, "producer_epoch": 0} for each in producers]
        place = {"prefix": "p", "query": "q", "micro_batch": 3, "attempt": attempt}
        return json.dumps(place | {"transactions": named} | more)

    assert verdicts([decision(1, 1, 2), decision(2, 3), decision(2, 3, revision=1)]) == {
        Producers(1, 0): INFO,
        Producers(2, 0): INFO,
        Producers(3, 0): OK,
    }
    assert verdicts([decision(1, 1, revision=1, intervention={"by": "hand"}), decision(1, 1)]) == {ONE: INFO}


FEED = Feed(
    "in",
    [
        Sent("1", True, {"p.0.0 x": (0, 1), "p.0.1 x": (1, 0), "p.1.0 x": (0, 4)}),
        Sent("2", False, {"in.0.0 aborted": (0, 0)}),
    ],
)
ROWS = ["p.0.0 x <- 0@1", "p.0.1 x <- 1@0", "p.1.0 x <- 0@4"]


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (ROWS, []),
        ([*ROWS, "in.0.0 aborted <- 0@0"], ["G1a"]),
        (ROWS[:2], ["torn-transaction"]),
        (ROWS[1:], ["torn-transaction"]),
        ([], ["unseen"] * 3),
        # One offset has two rows, and one row has two offsets.
        ([*ROWS[:2], "p.1.0 x <- 0@1"], ["inconsistent-offsets", "duplicate", "nonmonotonic-poll"]),
    ],
)
def test_source_output_is_verified(rows: list[str], kinds: list[str]) -> None:
    assert list(FEED.rows()) == ROWS
    written = {ONE: [("t-0", offset, row) for offset, row in enumerate(rows)]}
    read = {0: [(offset, row) for offset, row in enumerate(rows)]}
    assert [str(anomaly.kind) for anomaly in check(history("t", written, {ONE: OK}, read, FEED))] == kinds


def test_feed_reports_the_offsets_of_its_rows(here: World) -> None:
    feed = Feed()
    [case] = here.new_cases(1, feeds=[feed])
    found = read_committed(here.broker.address, [feed.topic], PARTITIONS)[feed.topic]
    assert sorted(line for lines in found.values() for line in lines) == sorted(
        line for number in range(2) for line in case.lines_of(number)
    )
    places = {place for sent in feed.transactions for place in sent.places.values()}
    every = {(number, offset) for number in range(PARTITIONS) for offset in range(feed.offsets_of_micro_batch)}
    # Two micro-batches, each with two markers in each partition.
    assert len(places) == len(every) - 2 * 2 * PARTITIONS and places < every


def test_verifier_detects_open_transactions(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.crash.judge.SETTLE_DEADLINE_S", 1)
    case, other = here.new_cases(2)
    _write(here.broker.address, other, _all(other))
    _decide(here, other)
    producer = _write(here.broker.address, case, _all(case), ends=False)
    [wrong] = here.judge([case, other])
    assert wrong == f"{case.topic}: transaction {case.prefix}.writer stays open"
    producer.commit_transaction(60)
    _decide(here, case)
    assert here.judge([case, other]) == []


def test_proxy_drops_the_response_to_an_applied_request(here: World) -> None:
    # A coordinator exists after the first request for it.
    Producer({"bootstrap.servers": here.broker.address, "transactional.id": "first"}).init_transactions(60)
    wire = Wire(here.broker.address)
    loss = Loss(INIT_PRODUCER_ID, (b"lossy",), without=b"other")
    wire.losses.append(loss)

    def epoch(name: str) -> int:
        with RawClient(wire.address) as client:
            return int(
                client.send(
                    InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4
                ).producer_epoch
            )

    try:
        assert epoch("lossy-other") >= 0
        with pytest.raises(ConnectionError):
            epoch("lossy")
        assert loss.lost == 1
        assert epoch("lossy") == 1
    finally:
        wire.close()


def test_killed_broker_recovers_its_acknowledged_writes(here: World) -> None:
    case = here.new_case()
    address = here.broker.address
    _write(address, case, _all(case))
    here.broker.kill()
    here.broker.start()
    assert here.broker.address == address
    _decide(here, case)
    assert here.judge([case]) == []


@pytest.mark.parametrize(
    ("end", "inputs"),
    [('{"logOffset":1}', 2), ('{"logOffset":2}', 3), ('{"t":{"0":7}}', 2)],
    ids=["one", "two", "kafka"],
)
def test_inputs_are_counted_although_a_micro_batch_has_two(tmp_path: Path, end: str, inputs: int) -> None:
    """As after a kill between two of Spark's logs: one run of the streams waited for a third micro-batch."""
    case = Case(tmp_path, "", 3)
    for folder, text in (("offsets", f"v1\n{{}}\n{end}"), ("commits", "v1\n{}")):
        (case.checkpoint / folder).mkdir(parents=True)
        for number in range(2):
            (case.checkpoint / folder / str(number)).write_text(text)
    assert inputs_committed(case) == inputs


def test_process_tree_is_found_and_ended() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as parent:
        family = wait_until(lambda: tree(parent.pid) if len(tree(parent.pid)) == 2 else None, "both run")
        send(reversed(family), signal.SIGKILL)
        parent.wait(60)
        wait_until(lambda: tree(family[1].pid) == [], "the child is gone")


def test_hanging_transactions_are_found_and_ended_and_open_ones_kept() -> None:
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


@pytest.mark.parametrize(
    ("state", "epochs_later", "commit"),
    [
        ("CompleteCommit", 0, True),
        ("CompleteCommit", 1, True),
        ("CompleteAbort", 1, False),
        ("Empty", 0, False),
        # The epoch of the transaction after it.
        ("CompleteCommit", 2, None),
        ("CompleteAbort", 3, None),
    ],
)
def test_outcome_of_a_hanging_transaction_follows_its_own_epoch(
    state: str, epochs_later: int, commit: bool | None
) -> None:
    place = Open(TopicPartition("t", 0), producer_id=7, producer_epoch=4, first_offset=0)
    assert outcome_of(place, TransactionDescription("id", 0, state, 7, 4 + epochs_later, 60_000, -1, ())) is commit
