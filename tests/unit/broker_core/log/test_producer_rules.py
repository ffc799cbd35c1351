"""The tables of the batches that a producer may append: each row, all combinations, and the fast path."""

from itertools import product, starmap
from pathlib import Path

import pytest

import broker_core
from broker_core.decision_table import Row, Table
from broker_core.errors import ErrorCode
from broker_core.log.producer_entry import BatchMetadata, ProducerStateEntry
from broker_core.log.producer_rules import (
    BATCH_RULES,
    MARKER_RULES,
    BatchCase,
    MarkerCase,
    ProducerVerification,
    judge_batch,
    judge_marker,
)
from broker_core.types import MAX_SEQUENCE

UNKNOWN = ProducerStateEntry(1)
MARKER_ONLY = ProducerStateEntry(1, 5, 0, 0)


def known(last_sequence: int, epoch: int = 5) -> ProducerStateEntry:
    return ProducerStateEntry(1, epoch, 0, 0, None, (BatchMetadata(last_sequence, 100, 0, 0),))


def verifying(lowest: int, *, bumps: bool) -> ProducerVerification:
    return ProducerVerification(1, 5, lowest, bumps)


OK, FENCED, GAP = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

# (rule, entry, verification, epoch, sequence, verdict)
C5 = [
    ("C.5/1", UNKNOWN, verifying(7, bumps=True), 5, 7, GAP),
    ("C.5/1", MARKER_ONLY, verifying(7, bumps=True), 5, 7, GAP),
    ("C.5/1", UNKNOWN, verifying(0, bumps=True), 5, 0, OK),
    ("C.5/1", UNKNOWN, verifying(7, bumps=False), 5, 7, OK),
    ("C.5/2", known(3), verifying(4, bumps=False), 5, 5, GAP),
    ("C.5/2", UNKNOWN, verifying(4, bumps=False), 5, 5, GAP),
    ("C.5/2", known(3), verifying(4, bumps=False), 5, 4, OK),
    ("C.5/3", UNKNOWN, None, 0, 0, OK),
    ("C.5/3", UNKNOWN, None, 9, 4711, OK),
    ("C.5/4", known(3), None, 4, 4, FENCED),
    ("C.5/4", MARKER_ONLY, None, 4, 0, FENCED),
    ("C.5/4", known(3), verifying(0, bumps=True), 4, 9, FENCED),
    ("C.5/5", known(3), None, 6, 0, OK),
    ("C.5/5", MARKER_ONLY, None, 6, 0, OK),
    ("C.5/6", known(3), None, 6, 1, GAP),
    ("C.5/6", known(3), None, 6, 4, GAP),
    ("C.5/7", known(3), None, 5, 4, OK),
    ("C.5/7", known(MAX_SEQUENCE), None, 5, 0, OK),
    ("C.5/8", known(3), None, 5, 3, GAP),
    ("C.5/8", known(3), None, 5, 5, GAP),
    ("C.5/8", known(3), None, 5, 0, GAP),
    ("C.5/8", known(MAX_SEQUENCE), None, 5, 1, GAP),
    ("C.5/9", MARKER_ONLY, None, 5, 0, OK),
    ("C.5/9", MARKER_ONLY, None, 5, 1, GAP),
]


@pytest.mark.parametrize(("rule", "entry", "verification", "epoch", "sequence", "verdict"), C5)
def test_rules_c5_batches(
    rule: str,
    entry: ProducerStateEntry,
    verification: ProducerVerification | None,
    epoch: int,
    sequence: int,
    verdict: ErrorCode,
) -> None:
    case = BatchCase(entry, verification, epoch, sequence)
    assert BATCH_RULES.resolve(**case.facts()) == verdict
    assert judge_batch(case) == verdict


def all_batch_cases() -> list[BatchCase]:
    entries = [UNKNOWN, MARKER_ONLY, known(0), known(3), known(MAX_SEQUENCE), known(-1)]
    verifications = [None, *(verifying(lowest, bumps=bumps) for lowest in (0, 4, 9) for bumps in (True, False))]
    return [BatchCase(*case) for case in product(entries, verifications, (4, 5, 6), (0, 1, 3, 4, 5, MAX_SEQUENCE))]


def test_fast_path_agrees_with_the_table() -> None:
    for case in all_batch_cases():
        assert judge_batch(case) == BATCH_RULES.resolve(**case.facts()), case


def test_every_batch_row_is_decisive() -> None:
    assert {BATCH_RULES.row(**case.facts()).rule for case in all_batch_cases()} == {
        row.rule for row in BATCH_RULES.rows
    }


OPEN = ProducerStateEntry(1, 5, 3, 0, 77)
CLOSED = ProducerStateEntry(1, 5, 3, 0)
ZOMBIE = ErrorCode.TRANSACTION_COORDINATOR_FENCED

# (entry, marker epoch, coordinator epoch, transaction version, verdict)
C6 = [
    (OPEN, 4, 3, 0, FENCED),
    (OPEN, 4, 3, 2, FENCED),
    (CLOSED, 4, 9, 0, FENCED),
    (OPEN, 5, 3, 0, OK),
    (OPEN, 5, 3, 1, OK),
    (OPEN, 5, 3, 2, FENCED),
    (CLOSED, 5, 3, 2, OK),
    (OPEN._replace(producer_epoch=32767), 32767, 3, 2, OK),
    (OPEN, 6, 3, 2, OK),
    (OPEN, 6, 2, 2, ZOMBIE),
    (OPEN, 5, 2, 0, ZOMBIE),
    (OPEN, 5, 4, 0, OK),
    (CLOSED, 5, 2, 0, ZOMBIE),
]


# Rules C.6/2, C.6/3 and C.6/4.
@pytest.mark.parametrize(("entry", "epoch", "coordinator_epoch", "version", "verdict"), C6)
def test_rules_c6_markers(
    entry: ProducerStateEntry, epoch: int, coordinator_epoch: int, version: int, verdict: ErrorCode
) -> None:
    assert MARKER_RULES.resolve(**MarkerCase(entry, epoch, coordinator_epoch, version).facts()) == verdict


def test_fast_path_of_markers_agrees_with_the_table() -> None:
    for case in starmap(MarkerCase, product((UNKNOWN, OPEN, CLOSED), (4, 5, 6, 32767), (2, 3, 4), (0, 1, 2))):
        assert judge_marker(case) is MARKER_RULES.row(**case.facts()), case


def test_every_marker_row_is_decisive() -> None:
    names = {MARKER_RULES.row(**MarkerCase(*case[:4]).facts()).rule for case in C6}
    assert names == {row.rule for row in MARKER_RULES.rows}


def test_case_without_a_row_is_rejected() -> None:
    with pytest.raises(AssertionError, match="no row claims"):
        Table("never", {"fact": (False, True)}, [Row("only if true", {"fact": (True,)}, ErrorCode.NONE)], ordered=True)


def test_unreachable_row_is_rejected() -> None:
    rows = [Row("all", {}, ErrorCode.NONE), Row("never asked", {"fact": (True,)}, ErrorCode.NONE)]
    with pytest.raises(AssertionError, match="no case meets"):
        Table("never", {"fact": (False, True)}, rows, ordered=True)


# Rule C.4/4.
def test_error_codes_of_older_brokers_are_not_used() -> None:
    old = ("DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
    package = Path(broker_core.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path.name != "errors.py":
            assert not [name for name in old if name in path.read_text(encoding="utf-8")], path
