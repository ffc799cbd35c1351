"""Power loss at any point of a compaction, and all files that it can leave behind."""

from collections.abc import Callable
from itertools import product

import pytest

from broker_core.log.checkpoints import checkpoint_steps
from broker_core.log.partition_log import PartitionLog
from broker_core.log.recovery_table import LogCondition
from broker_core.log.segment_swap import decide_swap, replaced_by_swap
from broker_core.ports import run_steps
from broker_core.simulation.disk import MemoryStorage
from tests.support.broker_core.compaction_world import (
    COMPACTED,
    FailingStorage,
    PowerLoss,
    batches,
    consume,
    is_due,
    recovery_findings,
    roll,
    view,
    write,
)
from tests.support.partition_logs import FOLDER, NOW_MS, end, newest_only, open_log
from tests.support.short_form import chosen

SETTINGS = {**COMPACTED, "segment.bytes": "1700"}
SUFFIXES = ("log", "index", "timeindex", "txnindex")


def build(storage: MemoryStorage) -> PartitionLog:
    """Write six small segments with plain, committed and aborted data."""
    log = open_log(storage, SETTINGS)
    for number in range(6):
        write(log, [(b"%d" % (number % 3), b"plain %d" % number), (b"x%d" % number, b"v")])
        for producer_id in (1, 2):
            write(
                log,
                [(b"%d" % (number % 2), b"txn %d" % number)],
                producer_id=producer_id,
                epoch=0,
                sequence=number,
                transactional=True,
            )
            end(log, producer_id, commit=(number + producer_id) % 2 == 0)
        roll(log)
    write(log, [(b"2", None)])
    log.sync()
    return log


def cleaned_files(storage: MemoryStorage) -> dict[str, bytes]:
    """Return the files that a compaction of the log in `storage` writes, without changing `storage`."""
    twin = MemoryStorage()
    for name, data in storage.files():
        twin.open(name).append(data)
    log = open_log(twin, SETTINGS)
    assert log.compact(NOW_MS) is not None
    log.close(NOW_MS)
    return dict(twin.files())


def path(offset: int, suffix: str) -> str:
    return f"{FOLDER}/{offset:020d}.{suffix}"


@pytest.mark.parametrize(
    ("without_snapshots", "names_survive"),
    chosen(list(product((False, True), repeat=2)), "power losses in a compaction", of=2),
)
def test_power_loss_at_any_point_of_compaction_is_recovered(names_survive: bool, without_snapshots: bool) -> None:
    calm = build(FailingStorage())
    expected, open_end = view(consume(calm)), calm.log_end_offset
    producers = [newest_only(entry) for entry in calm.producer_state.entries]
    budget, met = 0, set()
    while True:
        storage = FailingStorage()
        log = build(storage)
        storage.budget = budget
        try:
            done = log.compact(NOW_MS) is not None
        except PowerLoss:
            done = False
        storage.budget = None
        storage.crash(names_survive=names_survive)
        if without_snapshots:
            for name in storage.list_folder(FOLDER):
                if name.endswith(".snapshot"):
                    storage.delete(f"{FOLDER}/{name}")
        again = open_log(storage, SETTINGS)
        met.update(recovery_findings(again))
        assert (again.log_start_offset, again.last_stable_offset, again.log_end_offset) == (0, open_end, open_end)
        assert view(consume(again)) == expected
        assert [newest_only(entry) for entry in again.producer_state.entries] == producers
        assert again.producer_state.open_transactions == []
        assert not [name for name in storage.list_folder(FOLDER) if "cleaned" in name or "swap" in name]
        assert not (done and is_due(again, NOW_MS))
        again.compact(NOW_MS)
        assert not is_due(again, NOW_MS)
        assert view(consume(again)) == expected
        assert len(again.segments) < 7
        assert recovery_findings(open_log(storage, SETTINGS)) == []
        if done:
            break
        budget += 1
    assert budget > 20
    assert {LogCondition.UNFINISHED_SWAP, LogCondition.LEFTOVER_FILE} <= met


def test_committed_swap_is_completed(storage: MemoryStorage) -> None:
    build(storage)
    files = cleaned_files(storage)
    before = {int(name[-24:-4]) for name, _ in storage.files() if name.endswith(".log")}
    after = {int(name[-24:-4]) for name in files if name.endswith(".log")}
    base = min(after)
    for suffix in SUFFIXES:
        if path(base, suffix) in files:
            storage.open(path(base, suffix) + ".cleaned").append(files[path(base, suffix)])
    decide_swap(storage, FOLDER, base)
    replaced = replaced_by_swap(storage, FOLDER, base)
    assert set(replaced) == {offset for offset in before if base < offset < min(after - {base})}
    log = open_log(storage, SETTINGS)
    assert recovery_findings(log)[0] is LogCondition.UNFINISHED_SWAP
    for suffix in SUFFIXES:
        if path(base, suffix) in files:
            file = storage.open(path(base, suffix))
            assert file.read(0, file.size()) == files[path(base, suffix)]
    assert not any(storage.exists(path(offset, suffix)) for offset in replaced for suffix in SUFFIXES)


@pytest.mark.parametrize("lost", ["index", "timeindex", "txnindex"])
def test_swap_with_a_missing_index_is_completed(lost: str, storage: MemoryStorage) -> None:
    expected = view(consume(build(storage)))
    files = cleaned_files(storage)
    for suffix in SUFFIXES:
        if suffix != lost:
            storage.open(path(0, suffix) + ".swap").append(files[path(0, suffix)])
    log = open_log(storage, SETTINGS)
    # The index file on disk describes the batches before the compaction.
    met = recovery_findings(log)
    assert met[0] is LogCondition.UNFINISHED_SWAP
    assert (LogCondition.INDEX_MISSING in met) is (lost != "txnindex")
    assert view(consume(log)) == expected
    for start in range(log.log_end_offset):
        assert [record.offset for record in consume(log, start)] == [
            record.offset for record in consume(log) if record.offset >= start
        ]


@pytest.mark.parametrize(
    "suffix", [*(f"{suffix}.cleaned" for suffix in SUFFIXES), "index.swap", "timeindex.swap", "txnindex.swap"]
)
def test_uncommitted_swap_files_are_removed(suffix: str, storage: MemoryStorage) -> None:
    before = batches(build(storage))
    storage.open(path(0, suffix)).append(b"half")
    log = open_log(storage, SETTINGS)
    assert LogCondition.LEFTOVER_FILE in recovery_findings(log)
    assert not storage.exists(path(0, suffix))
    assert batches(log) == before


def _garble(storage: MemoryStorage) -> None:
    file = storage.open(f"{FOLDER}/cleaner-offset-checkpoint")
    file.truncate(0)
    file.append(b"nonsense")


def _ahead(storage: MemoryStorage) -> None:
    run_steps(storage, checkpoint_steps(storage, FOLDER, "cleaner-offset-checkpoint", ["topic 0 99999"]))


@pytest.mark.parametrize(
    ("damage", "found"), [(_garble, LogCondition.CLEANER_DAMAGED), (_ahead, LogCondition.CLEANER_AHEAD)]
)
def test_invalid_cleaner_checkpoint_is_ignored(damage: Callable[[MemoryStorage], None], found: LogCondition) -> None:
    storage = MemoryStorage()
    log = build(storage)
    log.compact(NOW_MS)
    expected = view(consume(log))
    assert not is_due(log, NOW_MS)
    log.close(NOW_MS)
    damage(storage)
    again = open_log(storage, SETTINGS)
    assert recovery_findings(again) == [found]
    assert recovery_findings(open_log(storage, SETTINGS)) == []
    result = again.compact(NOW_MS)
    assert result is not None and result.first_dirty_offset == 0
    assert view(consume(again)) == expected
