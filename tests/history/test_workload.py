"""A history of real clients whose broker process is killed, paused and restarted, and the inspection of its files."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.history.__main__ import Tally, kinds_of
from tests.history.clients import IN, OUT, PARTITIONS, SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S, Reader
from tests.history.workload import (
    LONG_PAUSE,
    LONGEST_PAUSE,
    LONGEST_PAUSE_S,
    WorkloadResult,
    draw_pause_s,
    name_of_pause,
    run,
)
from tests.support.clients import DEADLINE_S, READ_COMMITTED, make_transactional_producer, send
from tests.support.history.anomalies import Anomaly, Kind
from tests.support.history.checker import check
from tests.support.history.format import FAIL, INVOKE, OK, Op, read_history, write_history
from tests.support.history.recorder import Recorder


def has_enough(ops: Sequence[Op]) -> bool:
    """Return whether the history has enough transactions for a meaningful check."""
    ends = Counter((op.function, op.kind) for op in ops)
    return (
        ends["txn", OK] > 20
        and ends["txn", FAIL] > 0
        and any(op.kind == OK and op.transaction and list(op.offsets()) for op in ops)
    )


def test_killed_paused_and_restarted_broker_produces_no_anomaly_and_leaves_valid_files(tmp_path: Path):
    result = run(
        "broker_core",
        tmp_path / "broker",
        seed=7,
        seconds=8,
        fault_every_s=1.5,
        longest_pause_s=2,
        has_enough=has_enough,
    )
    assert [f"{each.kind}: {each.story}" for each in check(result.ops)] == []
    assert result.stuck == []
    assert result.problems == []
    assert has_enough(result.ops)
    assert sum(op.function == "drained" and op.kind == OK for op in result.ops) == 2
    assert result.faults.total() > 0

    write_history(tmp_path / "history.jsonl", result.ops)
    assert read_history(tmp_path / "history.jsonl") == result.ops


def test_pause_lengths_range_from_short_to_beyond_every_timeout():
    chance = random.Random(1)
    pauses_s = [draw_pause_s(chance, LONGEST_PAUSE_S) for _ in range(1_000)]
    assert max(pauses_s) <= LONGEST_PAUSE_S
    names = Counter(map(name_of_pause, pauses_s))
    assert names["pause"] > names[LONG_PAUSE] > 150
    assert names[LONGEST_PAUSE] > 150
    assert name_of_pause(SESSION_TIMEOUT_S) == "pause"
    assert name_of_pause(TRANSACTION_TIMEOUT_S) == LONG_PAUSE
    assert max(draw_pause_s(chance, 2) for _ in range(100)) <= 2


def test_reader_that_cannot_reach_the_end_reports_its_position():
    recorder = Recorder()
    with EmbeddedBroker(topics={IN: PARTITIONS, OUT: PARTITIONS}) as kafka:
        producer = make_transactional_producer(kafka, "open")
        producer.begin_transaction()
        send(producer, IN, [b"1"], partition=1)
        reader = Reader("reader", kafka.bootstrap_servers, recorder, random.Random(1), READ_COMMITTED)
        assert reader.drain({(IN, 0): 0, (IN, 1): 1}, deadline_s=1) == ["in-1"]
        assert recorder.ops[-1].value == {"in-0": 0}
        producer.commit_transaction(DEADLINE_S)
        assert reader.drain({(IN, 0): 0, (IN, 1): 2}, deadline_s=DEADLINE_S) == []
        assert recorder.ops[-1].value == {"in-0": 0, "in-1": 2}
        reader.close()


def test_summary_counts_operations_and_anomalies_by_kind():
    ops = [
        Op(0, 0, "w", INVOKE, "txn", transaction="t1"),
        Op(1, 1, "w", OK, "txn", transaction="t1"),
        Op(2, 2, "r", INVOKE, "poll"),
        Op(3, 3, "r", OK, "poll"),
    ]
    result = WorkloadResult(ops, Counter(kill=2), stuck=["a transaction"], problems=["an index", "a marker"])
    tally = Tally()
    tally.add(result, kinds_of(result, [Anomaly(Kind.TORN, "half")]), 3)
    tally.add(WorkloadResult(ops, Counter(kill=1, pause=1)), [], 4)
    assert tally.lines() == [
        "2 runs in 7 s: 4 operations, 2 transactions (2 ok)",
        "faults: 3 kill, 1 pause",
        "anomalies: 2 broker's files, 1 stuck, 1 torn-transaction; 1 runs had some",
    ]
