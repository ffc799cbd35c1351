"""KIP-584, Versioning scheme for features, with what each level of `transaction.version` changes (KIP-890).

`tests/unit/broker_core/broker/test_updated_feature_levels.py` tests how single updates are granted and refused.
"""

from typing import Any

import pytest

from broker_core.coordinator.transactions.records import decode_value
from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from tests.support.broker_core.feature_updates import update
from tests.support.broker_core.kip_world import NONE, STATE_PARTITION, Connection, Session, World
from tests.support.group_session import GroupSession
from tests.support.messages import SAFE, UNSAFE, UPGRADE, levels_request

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


def test_feature_level_disables_the_consumer_protocol():
    """Compatibility of KIP-848: `group.version` 0 leaves only the classic protocol."""
    world = World(settings={"group.version": "0"})
    world.cluster.controller.create_topic("read", 4)
    group = GroupSession(Connection(world.cluster), "group", "read")
    assert group.join("a").error == group.describe().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert group.client.send(levels_request(("group.version", 1, UPGRADE)), 2).error_code == NONE
    assert group.join("a").error == NONE
