"""Each decision records the image that the rules describe, and no other step is allowed (rules A.3, A.5, A.9, A.10)."""

from typing import Any

import pytest

from broker_core.coordinator.transactions.conditions import Claim, Expectation, claim, expectation, is_exhausted
from broker_core.coordinator.transactions.decision_tables import Image
from broker_core.coordinator.transactions.records import TransactionImage
from broker_core.coordinator.transactions.transitions import BUILDERS, Change, broken, build, step_rules, stored_rules
from broker_core.types import ProducerIdentity, TopicPartition, TransactionState

S = TransactionState
T0, T1 = frozenset({TopicPartition("t", 0)}), frozenset({TopicPartition("t", 1)})
P, N = 4000, 5000


def stored(state: TransactionState, **fields: Any) -> TransactionImage:
    """Return an image as it is stored in the log, at epoch 5."""
    idle = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    image = TransactionImage(P, 5, 60_000, state, frozenset() if idle else T0, 1000, -1 if state is S.EMPTY else 900, P)
    return image._replace(**fields)


def change(old: TransactionImage, next_state: TransactionState, last: int = 3) -> Change:
    return Change(old, last, next_state, 2000, 30_000, T1, 2, lambda: N)


TIMEOUT, NEXT_EPOCH = {"timeout_ms": 30_000}, {"producer_epoch": 6}
ROTATED = {"producer_id": N, "producer_epoch": 0}
OF_V2 = {"client_transaction_version": 2}
BUMPED, STARTED = NEXT_EPOCH | OF_V2, {"start_ms": 2000}
LAST_EPOCH = {"producer_epoch": 32766}
OVERFLOWED = {"producer_epoch": 32767, "next_producer_id": N} | OF_V2
ENDED = {"partitions": frozenset()}

ROWS: list[tuple[Image, TransactionImage, TransactionState, dict[str, Any], int]] = [
    # image, stored, next state, fields that change, last producer epoch afterwards
    (Image.BUMP, stored(S.EMPTY), S.EMPTY, NEXT_EPOCH | TIMEOUT, -1),
    (Image.BUMP, stored(S.COMPLETE_COMMIT), S.EMPTY, NEXT_EPOCH | TIMEOUT | {"start_ms": -1}, -1),
    (Image.BUMP_REMEMBERING, stored(S.EMPTY), S.EMPTY, NEXT_EPOCH | TIMEOUT, 5),
    (Image.REPEAT, stored(S.EMPTY), S.EMPTY, TIMEOUT, 3),
    (Image.ROTATE, stored(S.EMPTY, **LAST_EPOCH), S.EMPTY, ROTATED | TIMEOUT, -1),
    (Image.ROTATE_REMEMBERING, stored(S.EMPTY, **LAST_EPOCH), S.EMPTY, ROTATED | TIMEOUT, 32766),
    (Image.BEGIN, stored(S.COMPLETE_ABORT), S.ONGOING, STARTED | OF_V2 | {"partitions": T1}, 3),
    (Image.EXTEND, stored(S.ONGOING), S.ONGOING, OF_V2 | {"partitions": T0 | T1}, 3),
    (Image.PREPARE, stored(S.ONGOING, **OF_V2), S.PREPARE_COMMIT, {"client_transaction_version": 0}, 3),
    (Image.PREPARE_BUMPED, stored(S.ONGOING), S.PREPARE_COMMIT, BUMPED, 5),
    (Image.PREPARE_BUMPED, stored(S.ONGOING), S.PREPARE_ABORT, BUMPED, 5),
    (Image.PREPARE_BUMPED, stored(S.EMPTY), S.PREPARE_ABORT, BUMPED | STARTED, 5),
    (Image.PREPARE_BUMPED, stored(S.COMPLETE_COMMIT), S.PREPARE_ABORT, BUMPED | STARTED, 5),
    (Image.PREPARE_OVERFLOWED, stored(S.ONGOING, **LAST_EPOCH), S.PREPARE_COMMIT, OVERFLOWED, 32766),
    (Image.PREPARE_OVERFLOWED, stored(S.ONGOING, **LAST_EPOCH), S.PREPARE_ABORT, OVERFLOWED, 32766),
    (Image.FENCE, stored(S.ONGOING), S.PREPARE_ABORT, NEXT_EPOCH, -1),
    (Image.FENCE, stored(S.ONGOING, **LAST_EPOCH), S.PREPARE_ABORT, {"producer_epoch": 32767}, -1),
    (Image.COMPLETE, stored(S.PREPARE_COMMIT), S.COMPLETE_COMMIT, ENDED, 3),
    (Image.COMPLETE, stored(S.PREPARE_ABORT), S.COMPLETE_ABORT, ENDED, 3),
    (
        Image.COMPLETE_ROTATED,
        stored(S.PREPARE_ABORT, **OVERFLOWED),
        S.COMPLETE_ABORT,
        ENDED | ROTATED | {"next_producer_id": -1},
        32766,
    ),
]


# Rules A.5 more/1, A.6/9, A.6/10, A.9/1, A.9/4, A.10/1, A.10/2 and A.10/3.
@pytest.mark.parametrize(("image", "old", "next_state", "fields", "last"), ROWS)
def test_each_transition_derives_from_the_stored_state(
    image: Image, old: TransactionImage, next_state: TransactionState, fields: dict[str, Any], last: int
) -> None:
    new = old._replace(state=next_state, update_ms=2000, previous_producer_id=P, **fields)
    assert build(image, change(old, next_state)) == (new, last)


def test_every_transition_has_a_row() -> None:
    assert {row[0] for row in ROWS} == set(Image) == set(BUILDERS)


BROKEN: list[tuple[str, TransactionImage, TransactionImage]] = [
    ("legal step", stored(S.EMPTY), stored(S.COMPLETE_COMMIT)),
    ("epoch moves on", stored(S.EMPTY), stored(S.EMPTY, producer_epoch=4)),
    ("epoch moves on", stored(S.EMPTY), stored(S.EMPTY, producer_epoch=7)),
    ("epoch moves on", stored(S.EMPTY), stored(S.EMPTY, producer_id=N, producer_epoch=1)),
    ("has an epoch", stored(S.EMPTY, producer_epoch=-1), stored(S.EMPTY, producer_epoch=-1)),
    ("no partitions", stored(S.EMPTY), stored(S.EMPTY, partitions=T0)),
    ("no start", stored(S.COMPLETE_ABORT), stored(S.EMPTY, start_ms=900)),
    ("same identity", stored(S.EMPTY), stored(S.ONGOING, producer_epoch=6)),
    ("same timeout", stored(S.EMPTY), stored(S.ONGOING, timeout_ms=1)),
    ("partitions only grow", stored(S.ONGOING), stored(S.ONGOING, partitions=T1)),
    ("same partitions", stored(S.ONGOING), stored(S.PREPARE_COMMIT, partitions=T0 | T1)),
    ("same producer id", stored(S.ONGOING), stored(S.PREPARE_COMMIT, producer_id=N, producer_epoch=0)),
    ("bumped if V2", stored(S.ONGOING), stored(S.PREPARE_COMMIT, client_transaction_version=2)),
    ("has a start", stored(S.ONGOING), stored(S.PREPARE_COMMIT, start_ms=-1)),
    ("as prepared", stored(S.PREPARE_ABORT), stored(S.COMPLETE_ABORT, producer_epoch=6)),
    ("has a known client version", stored(S.EMPTY), stored(S.EMPTY, client_transaction_version=-1)),
    ("nothing to rotate", stored(S.PREPARE_ABORT), stored(S.COMPLETE_ABORT, next_producer_id=N)),
    ("rotates to another id, if at all", stored(S.ONGOING), stored(S.PREPARE_ABORT, next_producer_id=N)),
]


# Rules A.3 step/1, A.3 step/2, A.3 step/3 and A.3 step/4.
@pytest.mark.parametrize(("rule", "old", "new"), BROKEN)
def test_each_rule_detects_the_step_that_violates_it(rule: str, old: TransactionImage, new: TransactionImage) -> None:
    assert rule in broken(step_rules(old, new) | stored_rules(new))


def test_every_rule_has_a_violation_example() -> None:
    images = [stored(state) for state in S]
    rules = {name for image in images for name in step_rules(image, image) | stored_rules(image)}
    assert rules == {row[0] for row in BROKEN}


@pytest.mark.parametrize("image", [Image.COMPLETE, Image.EXTEND, Image.PREPARE, Image.BUMP])
def test_builder_refuses_an_illegal_step(image: Image) -> None:
    illegal = {
        Image.COMPLETE: (stored(S.ONGOING), S.COMPLETE_COMMIT),
        Image.EXTEND: (stored(S.PREPARE_COMMIT), S.ONGOING),
        Image.PREPARE: (stored(S.COMPLETE_COMMIT), S.PREPARE_COMMIT),
        Image.BUMP: (stored(S.ONGOING), S.EMPTY),
    }
    old, next_state = illegal[image]
    with pytest.raises(AssertionError, match="legal step"):
        build(image, change(old, next_state))


# Rules A.5/14, A.5/18, A.5/19 and A.5/20.
@pytest.mark.parametrize(
    ("expected", "fields", "fact"),
    [
        ((-1, -1), {}, Expectation.NONE),
        ((1, 1), {"producer_epoch": -1}, Expectation.FRESH),
        ((P, 5), {}, Expectation.CURRENT),
        ((P, 3), {}, Expectation.LAST),
        ((P, 4), {}, Expectation.OTHER),
        ((P, 6), {}, Expectation.OTHER),
        ((N, 5), {}, Expectation.FOREIGN),
        ((3000, 32766), {"previous_producer_id": 3000}, Expectation.OTHER),
        ((3000, 32767), {"previous_producer_id": 3000}, Expectation.OTHER),
        ((3000, 32765), {"previous_producer_id": 3000}, Expectation.FOREIGN),
    ],
)
def test_expected_identity_is_classified(expected: tuple[int, int], fields: dict[str, Any], fact: Expectation) -> None:
    assert expectation(stored(S.EMPTY, **fields), 3, ProducerIdentity(*expected)) is fact


def test_lost_rotation_response_is_recognized_by_the_last_epoch() -> None:
    rotated = stored(S.EMPTY, producer_id=N, producer_epoch=0, previous_producer_id=P)
    assert expectation(rotated, 32766, ProducerIdentity(P, 32766)) is Expectation.LAST


# Rules A.8 epochs/3 and A.8 V2/14.
@pytest.mark.parametrize(
    ("presented", "fields", "fact"),
    [
        ((P, 5), {}, Claim.CURRENT),
        ((P, 4), {"client_transaction_version": 2}, Claim.PREVIOUS),
        ((P, 4), {"client_transaction_version": 0}, Claim.OTHER_EPOCH),
        ((P, 3), {}, Claim.OTHER_EPOCH),
        ((P, 6), {}, Claim.OTHER_EPOCH),
        ((N, 5), {}, Claim.FOREIGN),
        ((3000, 32766), {"previous_producer_id": 3000, "producer_epoch": 0}, Claim.OVERFLOW),
        ((3000, 32766), {"previous_producer_id": 3000, "producer_epoch": 1}, Claim.FOREIGN),
        ((3000, 32765), {"previous_producer_id": 3000, "producer_epoch": 0}, Claim.FOREIGN),
        ((-1, 32766), {"previous_producer_id": -1, "producer_epoch": 0}, Claim.FOREIGN),
        ((P, 32766), {"producer_epoch": 32767, "client_transaction_version": 2}, Claim.OTHER_EPOCH),
    ],
)
def test_claimed_identity_is_classified(presented: tuple[int, int], fields: dict[str, Any], fact: Claim) -> None:
    assert claim(stored(S.COMPLETE_ABORT, **fields), ProducerIdentity(*presented)) is fact


# Rule A.1/3.
@pytest.mark.parametrize(("producer_epoch", "exhausted"), [(0, False), (32765, False), (32766, True), (32767, True)])
def test_last_two_epochs_are_never_given_to_clients(producer_epoch: int, exhausted: bool) -> None:
    assert is_exhausted(producer_epoch) is exhausted


@pytest.mark.parametrize("state", [S.PREPARE_ABORT, S.PREPARE_COMMIT])
def test_fencing_epoch_of_an_end_in_progress_recognizes_its_retry(state: TransactionState) -> None:
    assert claim(stored(state, producer_epoch=32767), ProducerIdentity(P, 32766)) is Claim.PREVIOUS
