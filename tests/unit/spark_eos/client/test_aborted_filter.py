"""The filter of aborted transactions, compared with a simple reading of random logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker_core.records.control import build_end_txn_marker
from broker_core.records.header import LENGTH_OVERHEAD, BatchHeader
from broker_core.types import AbortedTransaction
from spark_eos.client.aborted_filter import visible_in
from spark_eos.client.fetch import FetchedChunk
from tests.support.examples import examples

ABORT, COMMIT = "abort", "commit"
TRANSACTIONAL, CONTROL = 0x10, 0x20
# A data batch is not read, so it may have any place.
MARKERS = (ABORT, COMMIT, "")
ABORT_MARKER, COMMIT_MARKER = (
    build_end_txn_marker(commit=commit, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0).data
    for commit in (False, True)
)


def header(first: int, last: int, producer_id: int = -1, attributes: int = 0, count: int | None = None) -> BatchHeader:
    records = last - first + 1 if count is None else count
    return BatchHeader(
        first, len(ABORT_MARKER) - LENGTH_OVERHEAD, 0, 2, 0, attributes, last - first, 0, 0, producer_id, 0, 0, records
    )


@dataclass
class Log:
    """A log as a leader writes it, with the records that a simple reader returns."""

    batches: list[tuple[str, BatchHeader]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    decided: dict[int, bool] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    end: int = 0

    def plain(self, count: int) -> None:
        self.decided[self.end] = True
        self._append("", header(self.end, self.end + count - 1))

    def write(self, producer_id: int, count: int, left: int | None = None) -> None:
        self.open.setdefault(producer_id, []).append(self.end)
        self._append("", header(self.end, self.end + count - 1, producer_id, TRANSACTIONAL, left))

    def finish(self, producer_id: int, verdict: str) -> None:
        firsts = self.open.pop(producer_id, [])
        for first in firsts:
            self.decided[first] = verdict == COMMIT
        if firsts and verdict == ABORT:
            self.aborted.append((producer_id, firsts[0], self.end))
        self._append(verdict, header(self.end, self.end, producer_id, TRANSACTIONAL | CONTROL))

    def _append(self, verdict: str, batch: BatchHeader) -> None:
        self.batches.append((verdict, batch))
        self.end = batch.next_offset

    @property
    def last_stable_offset(self) -> int:
        return min((firsts[0] for firsts in self.open.values()), default=self.end)

    def fetch(self, position: int, count: int) -> tuple[list[tuple[str, BatchHeader]], list[AbortedTransaction]]:
        """Respond as a broker does: whole batches below the LSO, and the aborted transactions that overlap them."""
        below = [each for each in self.batches if each[1].next_offset > position]
        answer = [each for each in below if each[1].last_offset < self.last_stable_offset][:count]
        bound = answer[-1][1].next_offset if answer else position
        return answer, [
            AbortedTransaction(producer_id, first)
            for producer_id, first, marker in self.aborted
            if marker >= position and first < bound
        ]


def visible(batches: Sequence[tuple[str, BatchHeader]], aborted: Sequence[AbortedTransaction]) -> list[int]:
    placed = [(MARKERS.index(verdict) * len(ABORT_MARKER), batch) for verdict, batch in batches]
    chunk = FetchedChunk(memoryview(ABORT_MARKER + COMMIT_MARKER), placed, list(aborted), 0, 0, 0, 0)
    return [batch.base_offset for _, batch in visible_in(chunk)]


producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 3)),
    st.tuples(st.just("write"), producers, st.integers(1, 3)),
    st.tuples(st.just(COMMIT), producers),
    st.tuples(st.just(ABORT), producers),
)


# Rules D.2/1, D.2/2, D.2/3 and D.2/5.
@examples(400)
@given(st.lists(steps, max_size=40), st.integers(1, 6), st.randoms())
def test_filter_shows_only_committed_records_for_any_split_of_the_log(
    script: list[tuple[str, ...]], batches_per_answer: int, chance: "object"
) -> None:
    log = Log()
    for name, *values in script:
        numbers = [int(value) for value in values]
        if name == "plain":
            log.plain(numbers[0])
        elif name == "write":
            log.write(numbers[0], numbers[1])
        else:
            log.finish(numbers[0], name)
    shown: list[int] = []
    position = 0
    while position < log.last_stable_offset:
        answer, aborted = log.fetch(position, batches_per_answer)
        chance.shuffle(aborted)  # type: ignore[attr-defined]  # Kafka orders the list by marker, others not at all
        shown += visible(answer, aborted)
        position = answer[-1][1].next_offset
    assert shown == [first for first, committed in sorted(log.decided.items())
                     if committed and first < log.last_stable_offset]  # fmt: skip


# Rule D.2/1.
def test_aborted_list_may_be_unordered() -> None:
    log = Log()
    log.write(1, 1)
    log.write(2, 1)
    log.finish(2, ABORT)
    log.finish(1, ABORT)
    log.plain(1)
    answer, aborted = log.fetch(0, 100)
    assert aborted == [AbortedTransaction(2, 1), AbortedTransaction(1, 0)]
    assert visible(answer, aborted) == visible(answer, aborted[::-1]) == [4]


# Rule D.2/4.
def test_without_an_aborted_list_only_control_batches_are_dropped() -> None:
    log = Log()
    log.write(7, 1)
    log.finish(7, ABORT)
    log.plain(2)
    assert visible(log.batches, []) == [0, 2]


def test_nontransactional_records_of_an_aborted_producer_are_visible() -> None:
    batches = [("", header(0, 0, 7, TRANSACTIONAL)), ("", header(1, 1, 7)), (ABORT, header(2, 2, 7, 0x30))]
    assert visible(batches, [AbortedTransaction(7, 0)]) == [1]


# Rules D.2/5 and C.12/8.
def test_batches_emptied_by_compaction_yield_no_records() -> None:
    assert visible([("", header(0, 4, count=0)), ("", header(5, 5))], []) == [5]
