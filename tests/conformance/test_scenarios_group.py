"""The scenarios of rules L.1 about offsets committed in a transaction, by single requests."""

import pytest

from broker_core.errors import ErrorCode
from tests.support.clients import Kafka, make_topic, unique
from tests.support.protocols import CLASSIC, END, TXN_OFFSET_COMMIT, both_ends, both_protocols
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE


def wait_until_stable(session: RawSession, group: str, topic: str) -> int:
    """Wait for the marker and return the committed offset."""
    wait_until(lambda: session.committed(group, topic, require_stable=True)[0] == NONE, "the offset is stable")
    return session.committed(group, topic, require_stable=True)[1]


# Rule L.1/16
@both_protocols
@both_ends
def test_scenario_16_offsets_are_unstable_until_the_marker(
    kafka: Kafka, session: RawSession, protocol: int, commit: bool
):
    """Until the marker is written, OffsetFetch with require_stable returns UNSTABLE_OFFSET_COMMIT.
    Without require_stable it returns the last committed offset.
    """
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    if protocol == CLASSIC:
        assert session.add_offsets(identity, group) == NONE
    version = TXN_OFFSET_COMMIT[protocol]
    assert session.commit_in_transaction(identity, group, topic, 42, version=version) == NONE
    assert session.committed(group, topic, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert session.committed(group, topic, require_stable=False) == (NONE, -1)
    assert session.end(identity, commit=commit, version=END[protocol])[0] == NONE
    assert wait_until_stable(session, group, topic) == (42 if commit else -1)


# Rule L.1/17
@pytest.mark.parametrize(("plain_first", "expected"), [(True, 5), (False, 9)])
def test_scenario_17_a_plain_commit_inside_the_transaction(
    kafka: Kafka, session: RawSession, plain_first: bool, expected: int
):
    """Of a plain and a transactional commit, the one whose record was written later survives the COMMIT marker."""
    topic, group = make_topic(kafka), unique("group")
    identity = session.init()[1]
    if plain_first:
        assert session.commit_plainly(group, topic, 9) == NONE
    assert session.commit_in_transaction(identity, group, topic, 5, version=5) == NONE
    if not plain_first:
        assert session.commit_plainly(group, topic, 9) == NONE
    assert session.committed(group, topic, require_stable=False) == (NONE, 9)
    assert session.end(identity, commit=True, version=5)[0] == NONE
    assert wait_until_stable(session, group, topic) == expected
