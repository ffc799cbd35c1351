"""Power fails at every disk operation of changes of a share group's state; later members can read it.

The simulation found that these changes were durable in the wrong order.
"""

from collections.abc import Callable
from random import Random

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from broker_core.wire import messages as m
from tests.support.broker_core.share_moves_world import GROUP, TOPIC, ShareMovesWorld
from tests.support.share_session import Range
from tests.support.short_form import chosen
from tests.support.simulated.disk import PowerLoss, SimulatedDisk
from tests.support.simulated.faults import FaultCounts

E = ErrorCode
_MOST_OPERATIONS = 200
# Both at the same time: the new snapshots are not durable yet when the earlier ones are deleted.
_COLD_MS = _PRUNE_MS = 2_000
_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.cold.partition.snapshot.interval.ms": str(_COLD_MS),
    "share.coordinator.state.topic.prune.interval.ms": str(_PRUNE_MS),
    "share.coordinator.state.topic.segment.bytes": "200",
}
Action = Callable[[ShareMovesWorld], object]
Survivors = Callable[[str], bool]
# The files whose unsynced bytes survive: a disk guarantees no order between files.
_SURVIVORS: dict[str, Survivors] = {
    "nothing": lambda path: not path,
    "group records only": lambda path: path.startswith(CONSUMER_OFFSETS_TOPIC),
    "states only": lambda path: path.startswith(SHARE_GROUP_STATE_TOPIC),
}


def _join(world: ShareMovesWorld) -> None:
    world.join()


def _delete_offsets(world: ShareMovesWorld) -> None:
    form = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    world.coordinator_client.ask(m.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[form(topic_name=TOPIC)]), 0)


def _delete_group(world: ShareMovesWorld) -> None:
    world.coordinator_client.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), 2)


def _alter_offsets(world: ShareMovesWorld) -> None:
    form = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partitions = [form.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    topics = [form(topic_name=TOPIC, partitions=partitions)]
    world.coordinator_client.ask(m.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)


def _prune(world: ShareMovesWorld) -> None:
    for _ in range(6):
        world.pass_ms(_COLD_MS // 2)


def _joined(world: ShareMovesWorld) -> None:
    world.join()
    assert world.fetch().acquired == [Range(0, 4)]


def _emptied(world: ShareMovesWorld) -> None:
    _joined(world)
    assert world.heartbeat(epoch=-1).error_code == E.NONE


# Rules K.4/8 and K.4/9.
@pytest.mark.parametrize(
    "survivors", chosen(list(_SURVIVORS), "what a power loss leaves of share groups", of=len(_SURVIVORS))
)
@pytest.mark.parametrize(
    ("before", "action"),
    [
        (lambda _: None, _join),
        (_emptied, _delete_offsets),
        (_emptied, _delete_group),
        (_emptied, _alter_offsets),
        (_joined, _prune),
    ],
    ids=["initialize", "delete offsets", "delete group", "alter offsets", "prune"],
)
def test_state_of_a_share_group_survives_power_loss(before: Action, action: Action, survivors: str) -> None:
    for operations in range(_MOST_OPERATIONS):
        disk = SimulatedDisk(Random(1), FaultCounts())
        world = ShareMovesWorld(settings=_SETTINGS, storage=disk)
        before(world)
        world.settle()
        disk.fuse = operations
        try:
            action(world)
        except PowerLoss:
            failed = True
        else:
            failed = False
        disk.fuse = None
        disk.crash(survives=_survive(survivors), names_survive=True)
        world.restart(disk)
        world.join("heir")
        found = world.fetch("heir")
        assert (found.error, found.acquired) == (E.NONE, [Range(0, 4)]), f"after {operations} operations"
        if not failed:
            assert operations > 1, "the action did not touch the disk"
            return
    pytest.fail(f"the action takes more than {_MOST_OPERATIONS} operations")


def _survive(survivors: str) -> Callable[[str, int], int]:
    return lambda path, unsynced: unsynced if _SURVIVORS[survivors](path) else 0
