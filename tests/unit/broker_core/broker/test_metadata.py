"""The metadata: every change is recorded, and replaying the records gives the same metadata."""

import json
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.feature_levels import TRANSACTION_VERSION
from broker_core.broker.metadata import ClusterMetadata, replay_table
from broker_core.broker.metadata_records import shapes
from broker_core.broker.partitions import Leadership
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.types import TopicPartition
from tests.support.broker_core.metadata_journal import metadata_records

# Fields that older versions did not write, or that are written only when they say something.
OPTIONAL = {("opened", "settings"), ("topic", "replicas"), ("topic", "reassignments")}


class Journal:
    def __init__(self):
        self.records = []

    def append(self, _key, value):
        self.records.append(value)
        return len(self.records) - 1


def opened(journal, brokers=(1, 2)):
    metadata = ClusterMetadata(journal.append, brokers)
    metadata.load(list(enumerate(journal.records)))
    metadata.open_cluster("cluster", 2)
    return metadata


def snapshot(metadata):
    return (metadata.topics, metadata.names, metadata.cluster_id, metadata.transaction_version, metadata.features_epoch)


def test_restart_raises_every_leader_epoch_and_keeps_the_rest():
    journal = Journal()
    before = opened(journal)
    before.create_topic("t", UUID(int=1), 2, {"retention.ms": "5"})
    assert before.configure_topic("t", {"retention.ms": "7"}).config == {"retention.ms": "7"}
    after = opened(journal)
    assert after.topic("t").partitions == [Leadership(1, 1, (1, 2)), Leadership(2, 1, (2, 1))]
    assert after.topic("t").config == {"retention.ms": "7"}
    assert after.cluster_id == before.cluster_id


def test_partitions_of_a_removed_broker_get_a_new_leader():
    journal = Journal()
    opened(journal).create_topic("t", UUID(int=1), 2, {})
    assert {p.leader for p in opened(journal, brokers=(1,)).topic("t").partitions} == {1}


def test_name_that_differs_only_in_dots_is_refused_until_the_other_topic_is_deleted():
    metadata = opened(Journal())
    metadata.create_topic("a.b_c", UUID(int=1), 1, {})
    with pytest.raises(KafkaError, match=r"collides with existing topic: a\.b_c"):
        metadata.check_new_topic("a_b.c")
    metadata.delete_topic("a.b_c")
    metadata.check_new_topic("a_b.c")


def test_replicas_are_kept_over_a_restart():
    journal = Journal()
    before = opened(journal, brokers=(1, 2, 3))
    before.create_topic("t", UUID(int=1), 2, {}, [[3, 1], [2, 3]])
    before.add_partitions("t", 3, [[1, 3]])
    after = opened(journal, brokers=(1, 2, 3))
    assert [each.replicas for each in after.topic("t").partitions] == [(3, 1), (2, 3), (1, 3)]
    assert [each.leader for each in after.topic("t").partitions] == [3, 2, 1]


def test_new_partitions_have_as_many_replicas_as_the_first():
    metadata = opened(Journal(), brokers=(1, 2, 3))
    metadata.create_topic("t", UUID(int=1), 1, {}, metadata.place(1, 2))
    assert [each.replicas for each in metadata.add_partitions("t", 3).partitions] == [(1, 2), (2, 3), (3, 1)]


# Rule J.5/8.
def test_brokers_that_do_not_run_are_the_last_replicas():
    metadata = opened(Journal(), brokers=(1, 2, 3))
    metadata.running_ids = (1, 3)
    assert metadata.place(3, 2) == [[1, 3], [3, 1], [1, 3]]
    assert metadata.place(1) == [[3, 1, 2]]


def test_partition_without_stored_replicas_has_all_brokers_with_the_leader_first():
    metadata = loaded(topic_line("t", 1))
    partition = metadata.leadership(TopicPartition("t", 0))
    assert (metadata.replicas(partition), metadata.in_sync(partition)) == ((1, 2), [1, 2])
    moved = metadata.move_leader(TopicPartition("t", 0), 2)
    assert (moved, metadata.replicas(moved)) == (Leadership(2, 1), (2, 1))


def test_partition_whose_replicas_left_the_cluster_has_all_brokers():
    journal = Journal()
    opened(journal, brokers=(1, 2, 3)).create_topic("t", UUID(int=1), 2, {}, [[3], [3, 2]])
    metadata = opened(journal, brokers=(1, 2))
    assert metadata.topic("t").partitions == [Leadership(1, 1), Leadership(2, 1, (3, 2))]


def test_reassignment_that_waits_is_complete_when_the_cluster_opens():
    journal = Journal()
    before = opened(journal, brokers=(1, 2, 3))
    before.create_topic("t", UUID(int=1), 1, {}, [[1, 2]])
    waiting = Leadership(1, 0, (1, 2)).reassigned([3, 2])
    assert waiting == Leadership(1, 0, (3, 2, 1), (3,), (1,))
    before.change_partition(TopicPartition("t", 0), waiting)
    assert opened(journal, brokers=(1, 2)).topic("t").partitions == [Leadership(1, 1, (3, 2, 1), (3,), (1,))]
    [done] = opened(journal, brokers=(1, 2, 3)).topic("t").partitions
    assert (done.leader, done.replicas, done.is_reassigned) == (3, (3, 2), False)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_invalid_names_are_refused_and_nothing_is_recorded(name, code):
    journal = Journal()
    metadata = opened(journal)
    metadata.create_topic("there", UUID(int=1), 1, {})
    recorded = len(journal.records)
    with pytest.raises(KafkaError) as caught:
        metadata.create_topic(name, UUID(int=2), 1, {})
    assert (caught.value.code, len(journal.records)) == (code, recorded)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "delete", "widen", "configure", "move", "reassign", "raise", "feature", "ids"]),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
def test_replay_restores_the_live_state(steps):
    journal = Journal()
    metadata = opened(journal)
    for number, (action, which) in enumerate(steps):
        name = f"t{which}"
        with suppress(KafkaError):
            match action:
                case "create":
                    metadata.create_topic(name, UUID(int=number + 1), which + 1, {})
                case "delete":
                    metadata.delete_topic(name)
                case "widen":
                    metadata.add_partitions(name, which + 3)
                case "configure":
                    metadata.configure_topic(name, {"retention.ms": str(number)})
                case "move":
                    metadata.move_leader(TopicPartition(name, which), which)
                case "reassign":
                    place = TopicPartition(name, which)
                    metadata.change_partition(place, metadata.leadership(place).reassigned([2, 7]))
                case "raise":
                    metadata.raise_leader_epochs(which)
                case "feature":
                    metadata.set_feature(TRANSACTION_VERSION, which)
                case "ids":
                    metadata.allocate_producer_ids()
    replayed = ClusterMetadata(journal.append, (1, 2))
    for offset, value in enumerate(journal.records):
        replayed.replay(offset, json.loads(value))
    assert snapshot(replayed) == snapshot(metadata)


def loaded(*records):
    metadata = ClusterMetadata(lambda _key, _value: 0, (1, 2))
    metadata.load(list(enumerate(records)))
    return metadata


def test_every_record_type_has_a_schema_and_an_example():
    written = [json.loads(line) for line in metadata_records()[1:]]
    assert {each["type"] for each in written} == set(shapes()) == set(replay_table())
    for each in written:
        missing = {"type", *shapes()[each["type"]]} - each.keys()
        assert (
            each.keys() <= {"type", *shapes()[each["type"]]}
            and {(each["type"], field) for field in missing} <= OPTIONAL
        )
    assert all(any(field in each for each in written if each["type"] == name) for name, field in OPTIONAL)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record, field: record.pop(field),
        lambda record, field: record.update({field: -1}),
        lambda record, field: record.update({field: ["x"]}),
        lambda record, field: record.update({field: 2**70}),
    ],
    ids=["missing", "negative", "another kind", "huge"],
)
@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name, fields in shapes().items() for field in fields if (name, field) not in OPTIONAL],
)
def test_field_of_the_wrong_type_is_reported_as_damage(name, field, spoil):
    document = next(each for each in map(json.loads, metadata_records()[1:]) if each["type"] == name)
    spoil(document, field)
    with pytest.raises(DamageError, match=rf"metadata cannot be read \({field} missing or of a wrong kind\)"):
        loaded(json.dumps(document).encode())


@pytest.mark.parametrize("field", ["replicas", "reassignments"])
@pytest.mark.parametrize("value", [-1, None, [-1], ["x"], [[1, 1]], [[[1]]], [[[1], [1, 1]]], [[], [], []]])
def test_wrong_replicas_are_reported_as_damage(field, value):
    with pytest.raises(DamageError, match="metadata cannot be read"):
        loaded(json.dumps({**json.loads(topic_line("t", 1)), field: value}).encode())


def topic_line(name, number):
    return json.dumps(
        {"type": "topic", "name": name, "id": str(UUID(int=number)), "partitions": [[1, 0]], "config": {}}
    ).encode()


def partition_line(name, index):
    return json.dumps(
        {
            "type": "partition",
            "name": json.dumps([name, index]),
            "leadership": [2, 1],
            "replicas": [],
            "reassignment": [[], []],
        }
    ).encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "JSONDecodeError"),
        (b"[]", "TypeError"),
        (b"[" * 100_000, "RecursionError"),
        (b"{}", "KeyError: 'type'"),
        (b'{"type": "quota"}', "KeyError: 'quota'"),
        (b'{"type": []}', "TypeError"),
        (b'{"type": "topic_deleted", "name": "gone"}', "KeyError: 'gone'"),
        (partition_line("gone", 0), "KeyError: 'gone'"),
        (partition_line("t", 1), "IndexError"),
        (topic_line("other", 1), "already used with another one"),
        (topic_line("t", 2), "already used with another one"),
        (b'{"type": "feature", "name": "transaction.version", "level": 3}', "there is no transaction.version 3"),
        (b'{"type": "feature", "name": "share.version", "level": 3}', "there is no share.version 3"),
        (
            b'{"type": "acl", "name": "[99, 3, \\"t\\", \\"User:a\\", \\"*\\", 3, 3]", "exists": true}',
            "99 is not a valid",
        ),
    ],
)
def test_journal_of_a_newer_version_is_reported_as_damage(line, why):
    with pytest.raises(DamageError, match="record 1 of the cluster's metadata .*newer version") as caught:
        loaded(topic_line("t", 1), line)
    assert why in str(caught.value)
