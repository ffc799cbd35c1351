"""KIP-1152, Add transactional ID pattern filter to ListTransactions API."""

import pytest

from broker_core.errors import ErrorCode
from tests.support.broker_core.kip_world import Session, World

NAMES = ("orders-1", "orders-2", "bills-1")


@pytest.fixture
def named(world: World) -> Session:
    """Initialize some ids."""
    for name in NAMES:
        session = world.session(name)
        session.init()
    return session


# Rule F.3/4.
@pytest.mark.parametrize(
    ("pattern", "listed"),
    [
        (None, set(NAMES)),
        ("", set(NAMES)),
        (".*", set(NAMES)),
        ("orders-.*", {"orders-1", "orders-2"}),
        (".*-1", {"orders-1", "bills-1"}),
        ("orders", set()),
        ("orders-[12]|bills-2", {"orders-1", "orders-2"}),
    ],
)
def test_pattern_must_match_the_whole_id(named: Session, pattern: str | None, listed: set[str]):
    """ListTransactions, pattern filter: the pattern matches the whole id; an empty or absent one matches every id."""
    assert set(named.list(pattern=pattern)) == listed


def test_pattern_narrows_the_other_filters(named: Session):
    """ListTransactions: an id must match all filters."""
    assert named.list(pattern="orders-.*", states=["Ongoing"]) == {}
    assert set(named.list(pattern="orders-.*", states=["Empty"])) == {"orders-1", "orders-2"}


# Rule F.3/4.
@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "a**", "a++", "a(?=b)", "(?<!x)a", r"(a)\1", "(?P=x)"])
def test_invalid_pattern_is_refused(named: Session, pattern: str):
    """ListTransactions, errors: INVALID_REGULAR_EXPRESSION for what RE2 rejects; RE2 has no look-around."""
    for states in ([], ["Ongoing"], ["Sleeping"]):
        answer = named.list_answer(pattern=pattern, states=states)
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, []), states


def test_version_1_has_no_pattern(named: Session):
    """Public interfaces: the field exists from version 2 on."""
    assert set(named.list(version=1)) == set(NAMES)
