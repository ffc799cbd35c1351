"""Say as tables what a producer may append: client batches (rules C.5) and end-of-transaction markers (rules C.6).

A row names the conditions that must all hold and the verdict. Rows are asked from the top and the first that fits
decides. Together the rows leave no case open; a test walks all combinations of conditions.
"""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from broker_core.errors import ErrorCode
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.types import FENCING_EPOCH, MAX_SEQUENCE, NO_PRODUCER_EPOCH

ACCEPT: Final = ErrorCode.NONE


class Verification(NamedTuple):
    """Hold what is known of a producer between asking the coordinator about it and its first batch (rules C.3)."""

    guard: int
    producer_epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool


class BatchCase(NamedTuple):
    """Put a client's batch beside what the partition knows of its producer."""

    entry: ProducerStateEntry
    verification: Verification | None
    producer_epoch: int
    base_sequence: int


class MarkerCase(NamedTuple):
    """Put a marker beside what the partition knows of its producer."""

    entry: ProducerStateEntry
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int


Case = TypeVar("Case", BatchCase, MarkerCase)


class Rule(NamedTuple, Generic[Case]):
    """Hold one row: what must hold, and the verdict."""

    name: str
    conditions: tuple[Callable[[Case], bool], ...]
    verdict: ErrorCode


def decide(rules: tuple[Rule[Case], ...], case: Case) -> Rule[Case]:
    """Return the first row whose conditions all hold."""
    for rule in rules:
        for condition in rule.conditions:
            if not condition(case):
                break
        else:
            return rule
    raise AssertionError(f"no rule for {case}")


def epoch_is_old(case: BatchCase) -> bool:
    """Say whether a newer incarnation of the producer was here."""
    return case.producer_epoch < case.entry.producer_epoch


def epoch_is_new(case: BatchCase) -> bool:
    """Say whether the partition sees this incarnation for the first time."""
    return case.producer_epoch > case.entry.producer_epoch


def producer_is_unknown(case: BatchCase) -> bool:
    """Say whether the partition never met the producer, or forgot it."""
    return case.entry.producer_epoch == NO_PRODUCER_EPOCH


def no_batch_is_known(case: BatchCase) -> bool:
    """Say whether nothing but a marker, or nothing at all, came in the known epoch."""
    return not case.entry.batches


def begins_at_zero(case: BatchCase) -> bool:
    """Say whether the batch is the first of its epoch."""
    return case.base_sequence == 0


def does_not_begin_at_zero(case: BatchCase) -> bool:
    """Say whether batches of the epoch must have gone before."""
    return case.base_sequence != 0


def follows_the_newest(case: BatchCase) -> bool:
    """Say whether the sequence is the next one, 0 after 2**31 - 1."""
    last = case.entry.last_sequence
    return case.base_sequence == (0 if last == MAX_SEQUENCE else last + 1)


def verification_bumps_epochs(case: BatchCase) -> bool:
    """Say whether a client of transactions V2 is about to write: each of its transactions begins at sequence 0."""
    return case.verification is not None and case.verification.supports_epoch_bump


def is_behind_a_verified_batch(case: BatchCase) -> bool:
    """Say whether a batch with a lower sequence asked for verification and must come first."""
    return case.verification is not None and case.base_sequence > case.verification.lowest_sequence


_OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
_BAD_SEQUENCE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

# Rules C.5/4, C.5/1, C.5/2, C.5/3, C.5/5 and C.5/6, then C.5/7 and C.5/9, and C.5/8 and C.5/9.
BATCH_RULES: Final[tuple[Rule[BatchCase], ...]] = (
    Rule("an older epoch is fenced", (epoch_is_old,), _OLD_EPOCH),
    Rule(
        "a V2 transaction begins at sequence 0",
        (verification_bumps_epochs, no_batch_is_known, does_not_begin_at_zero),
        _BAD_SEQUENCE,
    ),
    Rule("an earlier batch still waits for verification", (is_behind_a_verified_batch,), _BAD_SEQUENCE),
    Rule("an unknown producer may begin anywhere", (producer_is_unknown,), ACCEPT),
    Rule("a new epoch begins at sequence 0", (epoch_is_new, begins_at_zero), ACCEPT),
    Rule("a new epoch may not begin later", (epoch_is_new,), _BAD_SEQUENCE),
    Rule("the next sequence", (follows_the_newest,), ACCEPT),
    Rule("a gap or a repetition too old to be known", (), _BAD_SEQUENCE),
)


def judge_batch(case: BatchCase) -> ErrorCode:
    """Return the verdict on a client's batch.

    All but a few batches are the next of a known producer, and for those the answer is known without the table: it
    is what the table says, and a test holds it to that.
    """
    entry = case.entry
    if (
        case.verification is None
        and case.producer_epoch == entry.producer_epoch
        and entry.batches
        and case.base_sequence == entry.batches[-1].last_sequence + 1
    ):
        return ACCEPT
    return decide(BATCH_RULES, case).verdict


def marker_is_older(case: MarkerCase) -> bool:
    """Say whether the marker belongs to an incarnation that was fenced."""
    return case.producer_epoch < case.entry.producer_epoch


def marker_must_be_newer(case: MarkerCase) -> bool:
    """Say whether the marker is one of transactions V2, written with the epoch after the transaction's own."""
    return case.transaction_version >= 2


def marker_has_the_epoch(case: MarkerCase) -> bool:
    """Say whether the marker carries the very epoch the partition knows."""
    return case.producer_epoch == case.entry.producer_epoch


def transaction_is_open(case: MarkerCase) -> bool:
    """Say whether there is something to end, so that the marker is no repetition."""
    return case.entry.current_txn_first_offset is not None


def epoch_can_grow(case: MarkerCase) -> bool:
    """Say whether a next epoch exists; the last one, 32767, ends its own transaction."""
    return case.producer_epoch != FENCING_EPOCH


def coordinator_is_older(case: MarkerCase) -> bool:
    """Say whether a newer coordinator has already spoken: this one is a zombie."""
    return case.coordinator_epoch < case.entry.coordinator_epoch


# Rules C.6/2, C.6/3, C.6/4 and C.6/5.
MARKER_RULES: Final[tuple[Rule[MarkerCase], ...]] = (
    Rule("an older epoch is fenced", (marker_is_older,), _OLD_EPOCH),
    Rule(
        "a V2 marker may not end a transaction of its own epoch",
        (marker_must_be_newer, marker_has_the_epoch, transaction_is_open, epoch_can_grow),
        _OLD_EPOCH,
    ),
    Rule("a zombie coordinator is fenced", (coordinator_is_older,), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    Rule("a marker, the first or a repetition", (), ACCEPT),
)
