"""KIP-584, Versioning scheme for features, with what each level of `transaction.version` changes (KIP-890).

`tests/unit/broker_core/broker/test_updated_feature_levels.py` tests how single updates are granted and refused.
"""

from typing import Any

import pytest

from broker_core.coordinator.transactions.records import decode_value
from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from tests.support.broker_core.feature_updates import SAFE, UNSAFE, UPGRADE, update
from tests.support.broker_core.kip_world import NONE, OTHER, STATE_PARTITION, TOPIC, Session, World
from tests.support.protocols import bumped
from tests.support.raw_session import Identity

FEATURE = "transaction.version"
CLASSIC_PRODUCE = 11


def api_versions(session: Session, version: int = 4) -> Any:
    """Send one ApiVersions and return the response."""
    return session.client.send(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)


def finalized(session: Session) -> int | None:
    """Return the finalized level in ApiVersions, or None if it is absent."""
    levels = {one.name: one.max_version_level for one in api_versions(session).finalized_features}
    return levels.get(FEATURE)


def set_level(session: Session, level: int, kind: int) -> None:
    """Change the level as `kafka-features` does."""
    assert update(session.client.direct, (FEATURE, level, kind)).error_code == NONE


def at_level(level: int) -> World:
    """Return a cluster of that level."""
    return World(settings={FEATURE: str(level)})


# Rule J.3/5.
@pytest.mark.parametrize(("level", "expected"), [(0, None), (1, 1), (2, 2)])
def test_finalized_level_is_returned_to_clients(level: int, expected: int | None):
    """Feature advertisement: ApiVersions contains the finalized levels, except level 0."""
    assert finalized(at_level(level).session()) == expected


# Rule J.3/4.
def test_supported_levels_are_returned_to_clients(session: Session):
    """Feature advertisement: the range that a broker supports; clients below version 4 cannot read a range from 0."""
    supported = {one.name: (one.min_version, one.max_version) for one in api_versions(session).supported_features}
    assert supported[FEATURE] == (0, 2)
    assert FEATURE not in {one.name for one in api_versions(session, 3).supported_features or ()}
    assert api_versions(session, 3).finalized_features_epoch >= 0


# Rule J.3/6.
def test_features_epoch_only_grows():
    """Feature advertisement: the epoch of the finalized features orders responses, across restarts too."""
    storage = MemoryStorage()
    world = World(storage=storage)
    epochs = [api_versions(world.session()).finalized_features_epoch]
    for level, kind in ((1, SAFE), (0, UNSAFE), (2, UPGRADE)):
        set_level(world.session(), level, kind)
        epochs.append(api_versions(world.session()).finalized_features_epoch)
    world.cluster.close(world.cluster.now_ms)
    epochs.append(api_versions(World(storage=storage).session()).finalized_features_epoch)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 4


# Rule A.15/1.
@pytest.mark.parametrize("level", [0, 1, 2])
def test_feature_level_determines_the_state_format(level: int):
    """Level 0 writes the old value format of the state log, level 1 the flexible one; every level reads both."""
    world = at_level(level)
    session = world.session()
    identity = session.init()[1]
    session.write(identity, version=CLASSIC_PRODUCE)
    log = world.cluster.logs.get(STATE_PARTITION, world.cluster.now_ms)
    values = [record.value for _, _, record in log.read_journal()]
    assert {int.from_bytes(value[:2], "big") for value in values} == {0 if level == 0 else 1}
    assert all(decode_value(value).identity == identity for value in values)
    set_level(session, 2 if level < 2 else 0, UPGRADE if level < 2 else UNSAFE)
    world.reload()
    assert session.state() == "Ongoing"
    assert session.end(identity, commit=True, version=4)[0] == NONE


# Rules A.10/1, A.10/2 and A.15/4.
@pytest.mark.parametrize(
    ("level", "version", "error"),
    [
        (0, 4, ErrorCode.PRODUCER_FENCED),
        (1, 4, ErrorCode.PRODUCER_FENCED),
        (2, 4, ErrorCode.PRODUCER_FENCED),
        (2, 5, NONE),
    ],
)
def test_broker_abort_bumps_the_epoch_once_at_every_level(level: int, version: int, error: ErrorCode):
    """The abort fences a classic producer; a V2 producer at level 2 takes it as the result of its own abort."""
    world = at_level(level)
    session = world.session()
    identity = session.init(timeout_ms=1000)[1]
    session.write(identity, version=CLASSIC_PRODUCE)
    world.pass_ms(20_000)
    described = session.describe()
    assert (described.transaction_state, described.producer_epoch) == ("CompleteAbort", identity.producer_epoch + 1)
    assert session.producers(TOPIC).active_producers[0].producer_epoch == identity.producer_epoch + 1
    assert session.end(identity, commit=False, version=version)[0] == error


def test_upgrade_does_not_wait_for_open_transactions():
    """Upgrade at run time: an open V1 transaction ends under V1, and the next one uses V2."""
    session = at_level(1).session()
    identity = session.init()[1]
    session.write(identity, version=CLASSIC_PRODUCE)
    set_level(session, 2, UPGRADE)
    session.write(identity, OTHER, version=CLASSIC_PRODUCE)
    assert session.end(identity, commit=True, version=4)[0] == NONE
    assert session.describe().producer_epoch == identity.producer_epoch
    # The client forces one bump in between, because the sequences of V2 start at 0.
    identity = session.init(expected=identity)[1]
    session.write(identity)
    assert session.end(identity, commit=True, version=5) == (NONE, bumped(identity))


# Rule A.15/6.
@pytest.mark.parametrize("level", [0, 1])
def test_downgrade_keeps_transactions_in_progress_consistent(world: World, session: Session, level: int):
    """Downgrade at run time: a transaction prepared under V2 completes under the rules of V2, with a rotation too."""
    identity = session.init()[1]
    session.write(identity)
    world.hold_markers()
    assert session.end(identity, commit=True, version=5) == (NONE, bumped(identity))
    set_level(session, level, UNSAFE)
    world.release_markers()
    described = session.describe()
    assert (described.transaction_state, Identity(described.producer_id, described.producer_epoch)) == (
        "CompleteCommit",
        bumped(identity),
    )
    assert session.end(identity, commit=True, version=5) == (NONE, bumped(identity))
    session.write(bumped(identity), version=CLASSIC_PRODUCE)
    assert session.end(bumped(identity), commit=True, version=4)[0] == NONE


def test_v1_and_v2_clients_are_served_at_every_level():
    """Compatibility: the level determines the protocol of new clients; every level accepts requests of both."""
    for level in (0, 1, 2):
        session = at_level(level).session()
        identity = session.init()[1]
        session.write(identity, version=CLASSIC_PRODUCE)
        assert session.end(identity, commit=True, version=4)[0] == NONE
        session.write(identity, OTHER)
        assert session.end(identity, commit=True, version=5) == (NONE, bumped(identity))
