"""The assignors give each partition to one subscribed member, evenly, and move few partitions."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    Balance,
    Reader,
    assign_ranges,
    assign_uniformly,
)
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from tests.support.examples import examples

T, U, V = (UUID(int=number) for number in range(1, 4))
names = st.sampled_from(["a", "b", "c", "d", "e"])
topic_sets = st.frozensets(st.sampled_from([T, U, V]))
sizes = st.dictionaries(st.sampled_from([T, U, V]), st.integers(1, 6))
groups = st.dictionaries(names, topic_sets, min_size=1)


def readers(subscriptions, had=None, instances=None):
    return {
        name: Reader(name, (instances or {}).get(name), topics, frozenset((had or {}).get(name, ())))
        for name, topics in subscriptions.items()
    }


def numbers(shares, topic=T):
    return {
        name: sorted(partition for topic_id, partition in share if topic_id == topic) for name, share in shares.items()
    }


def count_moves(before, after):
    return sum(len(before[name] - after[name]) for name in before)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@examples(50)
@given(subscriptions=groups, counts=sizes)
def test_each_partition_is_assigned_to_one_subscribed_member(name, subscriptions, counts):
    shares = ASSIGNORS[name](readers(subscriptions), counts)
    given_out = [partition for share in shares.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {
        TopicIdPartition(topic, number)
        for topic, count in counts.items()
        for number in range(count)
        if any(topic in topics for topics in subscriptions.values())
    }
    assert all(partition.topic_id in subscriptions[name] for name, share in shares.items() for partition in share)


@examples(50)
@given(members=st.sets(names, min_size=1), counts=sizes)
def test_uniform_assigns_equal_shares_to_equal_subscriptions(members, counts):
    shares = assign_uniformly(readers(dict.fromkeys(members, frozenset({T, U, V}))), counts)
    loads = [len(share) for share in shares.values()]
    assert max(loads) - min(loads) <= 1


@examples(50)
@given(subscriptions=groups, counts=sizes)
def test_uniform_leaves_no_move_that_would_improve_the_balance(subscriptions, counts):
    shares = assign_uniformly(readers(subscriptions), counts)
    for name, share in shares.items():
        for topic_id, _ in share:
            others = [len(shares[other]) for other, topics in subscriptions.items() if topic_id in topics]
            assert len(shares[name]) - min(others) <= 1


@examples(50)
@given(members=st.sets(names, min_size=2), counts=sizes, data=st.data())
def test_uniform_moves_only_what_a_departure_or_arrival_requires(members, counts, data):
    everything = frozenset({T, U, V})
    before = assign_uniformly(readers(dict.fromkeys(members, everything)), counts)
    assert assign_uniformly(readers(dict.fromkeys(members, everything), before), counts) == before
    leaver = data.draw(st.sampled_from(sorted(members)))
    stayed = members - {leaver}
    after = assign_uniformly(readers(dict.fromkeys(stayed, everything), before), counts)
    assert all(before[name] <= after[name] for name in stayed)
    again = assign_uniformly(readers(dict.fromkeys(members, everything), after), counts)
    assert count_moves(after, {**again, leaver: set()}) <= len(again[leaver])


def test_uniform_drops_deleted_and_unsubscribed_partitions():
    had = {"a": {TopicIdPartition(T, 0), TopicIdPartition(T, 7), TopicIdPartition(U, 0)}}
    shares = assign_uniformly(readers({"a": frozenset({T})}, had), {T: 2, U: 1})
    assert shares == {"a": {TopicIdPartition(T, 0), TopicIdPartition(T, 1)}}


def test_uniform_assigns_topics_with_few_subscribers_first():
    shares = assign_uniformly(readers({"a": frozenset({T}), "b": frozenset({T, U})}), {T: 2, U: 2})
    assert {name: len(share) for name, share in shares.items()} == {"a": 2, "b": 2}


def test_range_assigns_the_remainder_to_the_first_members():
    subscriptions = {"a": frozenset({T, U}), "b": frozenset({T, U}), "c": frozenset({T})}
    shares = assign_ranges(readers(subscriptions), {T: 4, U: 3})
    assert numbers(shares) == {"a": [0, 1], "b": [2], "c": [3]}
    assert numbers(shares, U) == {"a": [0, 1], "b": [2], "c": []}


def test_range_orders_static_members_first_and_by_instance():
    subscriptions = dict.fromkeys(["a", "b", "c"], frozenset({T}))
    shares = assign_ranges(readers(subscriptions, instances={"b": "2", "c": "1"}), {T: 3})
    assert numbers(shares) == {"c": [0], "b": [1], "a": [2]}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_more_members_than_partitions_leaves_some_without(name):
    shares = ASSIGNORS[name](readers(dict.fromkeys("abc", frozenset({T}))), {T: 2})
    assert sorted(len(share) for share in shares.values()) == [0, 1, 1]


def move_by_definition(shares, subscribers):
    """Move the last partition of the largest share to the subscriber with the smallest share, if the gap is two."""
    for donor in sorted(shares, key=lambda name: (-len(shares[name]), name)):
        for partition in sorted(shares[donor], key=lambda each: (each.partition, each.topic_id), reverse=True):
            receiver = min(subscribers[partition.topic_id], key=lambda name: len(shares[name]))
            if len(shares[donor]) - len(shares[receiver]) >= 2:
                shares[donor].remove(partition)
                shares[receiver].add(partition)
                return True
    return False


@examples(200)
@given(subscriptions=groups, counts=st.dictionaries(st.sampled_from([T, U, V]), st.integers(1, 12)), data=st.data())
def test_balance_is_reached_by_the_defined_moves(subscriptions, counts, data):
    subscribers = {
        topic: tuple(name for name in sorted(subscriptions) if topic in subscriptions[name]) for topic in counts
    }
    shares = {name: set() for name in subscriptions}
    for topic, members in subscribers.items():
        for number in range(counts[topic]):
            if members:
                shares[data.draw(st.sampled_from(members))].add(TopicIdPartition(topic, number))
    expected = {name: set(share) for name, share in shares.items()}
    while move_by_definition(expected, subscribers):
        pass
    Balance(shares, subscribers).even_out()
    assert shares == expected


def test_member_gives_a_partition_after_a_subscriber_of_its_topic_has_given_one():
    shares = {
        "a": {TopicIdPartition(T, number) for number in range(3)},
        "b": {TopicIdPartition(U, 0), TopicIdPartition(U, 1)},
        "c": set(),
    }
    Balance(shares, {T: ("a", "b"), U: ("b", "c")}).even_out()
    assert {name: len(share) for name, share in shares.items()} == {"a": 2, "b": 2, "c": 1}


class CountedNumber(int):
    """A partition number that counts comparisons, as a measure of the work."""

    comparisons = 0

    def __neg__(self):
        return CountedNumber(-int(self))

    def __lt__(self, other):
        CountedNumber.comparisons += 1
        return int(self) < int(other)

    def __gt__(self, other):
        CountedNumber.comparisons += 1
        return int(self) > int(other)

    def __eq__(self, other):
        CountedNumber.comparisons += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def comparisons_to_share(count):
    """Count the comparisons when two new members join a member that has all partitions."""
    had = {"a": {TopicIdPartition(T, CountedNumber(number)) for number in range(count)}}
    members = readers(dict.fromkeys("abc", frozenset({T})), had)
    CountedNumber.comparisons = 0
    shares = assign_uniformly(members, {T: count})
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
    return CountedNumber.comparisons


def test_uniform_work_grows_linearly_with_the_partitions():
    assert comparisons_to_share(800) < 3 * comparisons_to_share(400) < 3 * 400 * 100
