"""Judge a history of real clients whose broker, a process with a disk, is killed and paused."""

from collections import Counter
from pathlib import Path

from tests.history.checker import check
from tests.history.format import FAIL, OK, read_history, write_history
from tests.history.workload import run


def test_a_broker_that_is_killed_and_paused_tells_no_lies(tmp_path: Path) -> None:
    story = run("broker_core", tmp_path / "broker", seed=7, seconds=8, fault_every_s=1.5)
    assert [f"{each.kind}: {each.story}" for each in check(story.ops)] == []
    # A history of nothing proves nothing.
    ends = Counter((op.function, op.kind) for op in story.ops)
    assert ends["txn", OK] > 20
    assert ends["txn", FAIL] > 0
    assert ends["drained", OK] == 2
    assert any(op.kind == OK and op.transaction and list(op.offsets()) for op in story.ops)
    assert story.faults["kill"] + story.faults["pause"] >= 3

    write_history(tmp_path / "history.jsonl", story.ops)
    assert read_history(tmp_path / "history.jsonl") == story.ops
