"""Producer state compared with a plain model that follows the text of rules C.2 to C.6 and C.10.

The model keeps the whole history and searches it each time, without tables, guards or shortcuts. The generated batches
depend on the model's state, because nearly all random ones would be refused.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.producer_state import SENTINEL, AppendOrigin, Guard, ProducerState
from broker_core.log.snapshots import decode_snapshot, encode_snapshot
from broker_core.records.control import ControlType, EndTxnMarker, build_end_txn_marker
from broker_core.records.header import BatchHeader
from tests.support.examples import examples
from tests.support.partition_logs import NOW_MS, batch

WRAP = 2**31
LIMIT_MS = 1000
APPENDED = "appended"
GAP, FENCED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
ZOMBIE, WRONG_STATE = ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_TXN_STATE


class Sent(NamedTuple):
    """A batch that a producer sent, and its place in the log."""

    epoch: int
    first: int
    last: int
    offset: int
    timestamp_ms: int


class Asked(NamedTuple):
    """A verification that waits for its first batch."""

    guard: Guard
    epoch: int
    lowest: int
    bumps: bool
    seen_ms: int | None = None


@dataclass
class Producer:
    """The state of one producer, in the terms of the rules."""

    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp_ms: int = -1
    open_since: int | None = None
    sent: list[Sent] = field(default_factory=list)

    @property
    def window(self) -> list[Sent]:
        """Rule C.2/1: at most five batches, forgotten when the epoch changes."""
        return self.sent[-5:]


class Model:
    """The model, which applies the rules in their order."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.asked: dict[int, Asked] = {}

    def of(self, producer_id: int) -> Producer:
        return self.producers.get(producer_id) or Producer()

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether this epoch has a transaction open."""
        producer = self.of(producer_id)
        return producer.open_since is not None and producer.epoch == epoch

    def judge(self, producer_id: int, batch: Sent, transactional: bool, guard: Guard) -> Any:
        """Follow rules C.1/22 to C.1/27."""
        producer = self.of(producer_id)
        for known in producer.window:
            if (known.epoch, known.first, known.last) == (batch.epoch, batch.first, batch.last):
                return known
        if transactional and not self.is_open(producer_id, batch.epoch):
            if batch.epoch < producer.epoch:
                return FENCED
            asked = self.asked.get(producer_id)
            if asked is None or guard != asked.guard:
                return WRONG_STATE
        if batch.epoch < producer.epoch:
            return FENCED
        if self._is_out_of_order(producer_id, producer, batch):
            return GAP
        if producer.open_since is not None and not transactional:
            return WRONG_STATE
        return APPENDED

    def _is_out_of_order(self, producer_id: int, producer: Producer, batch: Sent) -> bool:
        """Follow rules C.5."""
        asked = self.asked.get(producer_id)
        if asked is not None and asked.bumps and not producer.sent and batch.first != 0:
            return True
        if asked is not None and batch.first > asked.lowest:
            return True
        if producer.epoch == -1:
            return False
        if batch.epoch > producer.epoch or not producer.sent:
            return batch.first != 0
        return batch.first != (producer.sent[-1].last + 1) % WRAP

    def append(self, producer_id: int, batch: Sent, transactional: bool) -> None:
        """Follow rules C.1/28 and C.3 guard."""
        producer = self.producers.setdefault(producer_id, Producer())
        if batch.epoch != producer.epoch:
            producer.sent = []
        producer.epoch, producer.timestamp_ms = batch.epoch, batch.timestamp_ms
        producer.sent.append(batch)
        if transactional:
            self.asked.pop(producer_id, None)
            if producer.open_since is None:
                producer.open_since = batch.offset

    def judge_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> Any:
        """Follow rules C.6."""
        producer = self.of(producer_id)
        if epoch < producer.epoch:
            return FENCED
        if version == 2 and epoch == producer.epoch and producer.open_since is not None and epoch != 32767:
            return FENCED
        if coordinator_epoch < producer.coordinator_epoch:
            return ZOMBIE
        return APPENDED

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp_ms: int) -> int | None:
        """Follow rules C.6/5, C.6/6 and C.3 guard/4."""
        producer = self.producers.setdefault(producer_id, Producer())
        if epoch != producer.epoch:
            producer.sent = []
        began, producer.open_since = producer.open_since, None
        producer.epoch, producer.coordinator_epoch = epoch, coordinator_epoch
        producer.timestamp_ms = timestamp_ms
        asked = self.asked.get(producer_id)
        if asked is not None and not (asked.bumps and asked.epoch == epoch):
            del self.asked[producer_id]
        return began

    def expire(self, now_ms: int) -> None:
        """Follow rules C.10; the age of a verification counts from the first sweep that sees it."""
        seen = {
            producer_id: asked._replace(seen_ms=now_ms if asked.seen_ms is None else asked.seen_ms)
            for producer_id, asked in self.asked.items()
        }
        self.asked = {
            producer_id: asked for producer_id, asked in seen.items() if now_ms - (asked.seen_ms or 0) < LIMIT_MS
        }
        self.producers = {
            producer_id: producer
            for producer_id, producer in self.producers.items()
            if producer.open_since is not None or now_ms - producer.timestamp_ms < LIMIT_MS
        }


class World:
    """The producer state and its model, with the same operations."""

    def __init__(self) -> None:
        self.state, self.model = ProducerState(), Model()
        self.offset, self.now_ms = 0, NOW_MS
        self.guards: dict[int, Guard] = {}

    def verify(self, producer_id: int, epoch: int, sequence: int, bumps: bool) -> None:
        model = self.model
        try:
            guard = self.state.start_verification(producer_id, epoch, sequence, bumps)
        except KafkaError as error:
            assert error.code is FENCED
            assert epoch < model.of(producer_id).epoch
            return
        assert epoch >= model.of(producer_id).epoch
        assert (guard == SENTINEL) == model.is_open(producer_id, epoch)
        self.guards[producer_id] = guard
        if guard == SENTINEL:
            return
        known = model.asked.get(producer_id)
        if known is None:
            assert guard not in [asked.guard for asked in model.asked.values()]
            model.asked[producer_id] = Asked(guard, epoch, sequence, bumps)
        else:
            assert guard == known.guard
            if epoch > known.epoch:
                model.asked[producer_id] = known._replace(epoch=epoch, lowest=sequence)
            elif epoch == known.epoch:
                model.asked[producer_id] = known._replace(lowest=min(sequence, known.lowest))

    def send(self, producer_id: int, epoch: int, first: int, count: int, transactional: bool) -> None:
        sent = Sent(epoch, first, (first + count - 1) % WRAP, self.offset, self.now_ms + count - 1)
        header = BatchHeader.parse(
            batch(
                count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=first,
                timestamp_ms=self.now_ms,
                is_transactional=transactional,
            )
        )
        guard = self.guards.get(producer_id, SENTINEL)
        verdict = self.model.judge(producer_id, sent, transactional, guard)
        try:
            known = self.state.check_batch(header, origin=AppendOrigin.CLIENT, guard=guard, verification_enabled=True)
        except KafkaError as error:
            assert error.code == verdict
            return
        if known is not None:
            assert (known.first_sequence, known.last_sequence, known.first_offset, known.timestamp_ms) == verdict[1:]
            return
        assert verdict == APPENDED
        self.state.apply_batch(header, self.offset)
        self.model.append(producer_id, sent, transactional)
        self.offset += count

    def end(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int, commit: bool) -> None:
        verdict = self.model.judge_marker(producer_id, epoch, coordinator_epoch, version)
        try:
            self.state.check_marker(producer_id, epoch, coordinator_epoch, version)
        except KafkaError as error:
            assert error.code == verdict
            return
        assert verdict == APPENDED
        header = build_end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self.now_ms,
        ).header
        marker = EndTxnMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
        aborted = self.state.apply_marker(header, self.offset, marker)
        began = self.model.mark(producer_id, epoch, coordinator_epoch, self.now_ms)
        still_open = [each.open_since for each in self.model.producers.values() if each.open_since is not None]
        stable = min(still_open, default=self.offset + 1)
        assert aborted == (None if began is None or commit else (producer_id, began, self.offset, stable))
        self.offset += 1

    def wait(self, waited_ms: int) -> None:
        self.now_ms += waited_ms
        self.sweep()
        if waited_ms >= LIMIT_MS:
            # The first sweep may be the one that sees a verification; this one removes it.
            self.now_ms += LIMIT_MS
            self.sweep()

    def sweep(self) -> None:
        self.state.expire(self.now_ms, LIMIT_MS)
        self.model.expire(self.now_ms)

    def restart(self) -> None:
        """Restart from a snapshot: it keeps the newest batch of each producer, one timestamp for both (rule C.9/2)."""
        self.state = ProducerState(decode_snapshot(encode_snapshot(self.state.entries)))
        self.model.asked.clear()
        for producer in self.model.producers.values():
            producer.sent = [sent._replace(timestamp_ms=producer.timestamp_ms) for sent in producer.sent[-1:]]

    def check(self) -> None:
        found = {entry.producer_id: entry for entry in self.state.entries}
        assert list(found) == sorted(self.model.producers)
        for producer_id, producer in self.model.producers.items():
            entry = found[producer_id]
            assert (
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.last_timestamp_ms,
                entry.current_txn_first_offset,
            ) == (producer.epoch, producer.coordinator_epoch, producer.timestamp_ms, producer.open_since)
            assert [
                (known.first_sequence, known.last_sequence, known.first_offset, known.timestamp_ms)
                for known in entry.batches
            ] == [sent[1:] for sent in producer.window]
        opened = sorted(
            (producer.open_since, producer_id)
            for producer_id, producer in self.model.producers.items()
            if producer.open_since is not None
        )
        assert [(found.first_offset, found.producer_id) for found in self.state.open_transactions] == opened


PRODUCERS = st.integers(1, 2)
# The difference between an epoch and the current one; a zombie has -1.
STEPS = st.sampled_from([0, 0, 0, 0, 1, -1])
SEQUENCES = st.sampled_from(["next", "next", "next", "next", "zero", "gap", "again 1", "again 5", "again 6", "last"])
VERIFY = st.tuples(st.just("verify"), PRODUCERS, STEPS, SEQUENCES, st.booleans())
SEND = st.tuples(st.just("send"), PRODUCERS, STEPS, SEQUENCES, st.integers(1, 3), st.booleans())
END = st.tuples(
    st.just("end"), PRODUCERS, STEPS, st.sampled_from([0, 0, 1, -1]), st.sampled_from([0, 1, 2]), st.booleans()
)
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, LIMIT_MS - 1, LIMIT_MS]))
# A new incarnation, and a transaction of version 2: verify, send from sequence 0 on, end with the next epoch.
REBORN = st.tuples(st.just("send"), PRODUCERS, st.just(1), st.just("zero"), st.integers(1, 3), st.booleans())
VERIFY_NEXT = st.tuples(st.just("verify"), PRODUCERS, st.sampled_from([0, 1, 1]), st.just("zero"), st.just(True))
BEGIN_NEXT = st.tuples(
    st.just("send"), PRODUCERS, st.sampled_from([0, 1]), st.just("zero"), st.integers(1, 3), st.just(True)
)
END_NEXT = st.tuples(st.just("end"), PRODUCERS, st.sampled_from([1, 1, 0]), st.just(0), st.just(2), st.booleans())
EVENTS = (
    VERIFY,
    VERIFY,
    SEND,
    SEND,
    SEND,
    END,
    END,
    REBORN,
    VERIFY_NEXT,
    BEGIN_NEXT,
    END_NEXT,
    WAIT,
    st.just(("restart",)),
)
HISTORIES = st.integers(5, 50).flatmap(lambda size: st.lists(st.one_of(*EVENTS), min_size=size, max_size=size))


def sequence_of(producer: Producer, choice: str) -> int:
    """Return the sequence number that the choice stands for, for this producer."""
    sent = producer.sent
    if not sent or choice in ("zero", "last"):
        return WRAP - 2 if choice == "last" else 0
    if choice.startswith("again"):
        return sent[-min(int(choice[-1]), len(sent))].first
    return (sent[-1].last + (2 if choice == "gap" else 1)) % WRAP


# Rules C.1/23, C.2/2, C.2/3, C.3 start/1, C.3 start/3, C.3 start/4, C.3 guard/4, C.3 guard/5, C.4/1, C.5/2, C.5/7,
# C.5/9 and C.6/5.
@examples(120)
@given(HISTORIES)
# Short waits add up until a verification expires.
@example([("verify", 1, 0, "zero", True), ("wait", 1), ("wait", 999), ("wait", 1), ("verify", 1, 0, "next", False)])
def test_producer_state_matches_the_rules(history: list[tuple[Any, ...]]) -> None:
    world = World()
    for what, *choices in history:
        if what == "restart":
            world.restart()
        elif what == "wait":
            world.wait(*choices)
        else:
            producer_id, step, *rest = choices
            producer = world.model.of(producer_id)
            epoch = max(0, producer.epoch + step)
            if what == "end":
                coordinator_epoch = max(0, producer.coordinator_epoch + rest[0])
                world.end(producer_id, epoch, coordinator_epoch, *rest[1:])
            else:
                getattr(world, what)(producer_id, epoch, sequence_of(producer, rest[0]), *rest[1:])
        world.check()


def test_sequence_wraps_within_the_window() -> None:
    """Five batches around the wrap are recognized as duplicates, the sixth is not."""
    world = World()
    for number in range(6):
        world.send(1, 0, (WRAP - 5 + 2 * number) % WRAP, 2, False)
    assert world.offset == 12
    for number in range(6):
        world.send(1, 0, (WRAP - 5 + 2 * number) % WRAP, 2, False)
    world.check()
    assert world.offset == 12
