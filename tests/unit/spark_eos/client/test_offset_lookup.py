"""The leaders that a look-up remembers, when brokers name different ones."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.client.response_decoders import FilteredMetadata

TP, ID, OTHER_ID = TopicPartition("t", 0), UUID(int=1), UUID(int=2)


def topic(leader: int, epoch: int, topic_id: UUID | None = ID) -> dict[str, TopicMetadata]:
    return {"t": TopicMetadata("t", topic_id, False, 0, {0: PartitionMetadata(0, leader, epoch, 0)})}


def looking(*answers: dict[str, TopicMetadata], of_each: dict[int, dict[str, TopicMetadata] | None]) -> OffsetLookup:
    left = list(answers)
    client: Any = SimpleNamespace(
        deadline=lambda: 0.0,
        ask_any_broker=lambda _: FilteredMetadata(None, left.pop(0)),  # type: ignore[arg-type]
        topics_by_broker=lambda _: of_each,
        brokers=lambda: [SimpleNamespace(node_id=1)],
        transport=SimpleNamespace(cluster=SimpleNamespace(update_metadata=lambda _: None)),
    )
    return OffsetLookup(client)


@pytest.mark.parametrize(
    ("later", "leader"),
    [
        (topic(1, 4), 2),
        (topic(1, 5), 1),
        (topic(1, 6), 1),
        (topic(-1, -1), -1),
        (topic(1, 0, OTHER_ID), 1),
        (topic(1, 4, None), 1),
    ],
)
def test_an_earlier_leader_replaces_no_later_one_of_the_same_topic(
    later: dict[str, TopicMetadata], leader: int
) -> None:
    lookup = looking(topic(2, 5), later, topic(2, 5), later, of_each={})
    lookup.places(["t"])
    assert lookup.places(["t"])[TP].leader_id == leader
    lookup.places_matching("t".__eq__)
    assert lookup.places_matching("t".__eq__)[TP].leader_id == leader


def test_the_newest_leader_that_any_broker_names_is_found_and_kept() -> None:
    lookup = looking(
        topic(1, 3), topic(1, 3), of_each={1: topic(1, 3), 2: topic(2, 4), 3: None, 4: topic(4, 9, OTHER_ID), 5: {}}
    )
    lookup.places(["t"])
    newest = {TP: PartitionPlace(ID, 2, 4)}
    assert lookup.newest_places([TP]) == newest
    assert lookup.places(["t"]) == newest
