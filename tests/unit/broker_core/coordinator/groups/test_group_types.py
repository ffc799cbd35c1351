"""The types of groups that features add."""

from itertools import combinations

from broker_core.coordinator.groups.classic.records import GROUP_KEY_TYPE
from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS
from broker_core.coordinator.groups.group_types import group_types
from broker_core.coordinator.groups.offsets.store import OFFSET_KEY_TYPES


def test_the_records_of_each_type_of_group_have_key_types_of_their_own() -> None:
    of_features = [frozenset(each.records.key_types) for each in group_types()]
    own = [frozenset({GROUP_KEY_TYPE}), frozenset(OFFSET_KEY_TYPES), frozenset(CONSUMER_RECORDS.key_types)]
    assert all(one.isdisjoint(other) for one, other in combinations([*own, *of_features], 2))
