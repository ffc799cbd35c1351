"""Fuzz targets for the records of the journals, of the coordinators and of the cluster."""

from broker_core.broker.metadata import ClusterMetadata
from broker_core.coordinator.groups.classic.records import read_group_key, read_group_metadata
from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType
from broker_core.coordinator.groups.offsets.store import read_offset_key, read_offset_value
from broker_core.coordinator.record_fields import int16
from broker_core.coordinator.transactions.records import decode_key, decode_value


def feed_transactions(data: bytes) -> None:
    """Decode a key and a value of a transactional id; the first byte is the length of the key."""
    cut = 1 + (data[0] if data else 0)
    decode_key(data[1:cut])
    decode_value(data[cut:])


def feed_groups(data: bytes) -> None:
    """Decode a key and a value of any kind of group record; the first byte selects the kind."""
    if not data:
        return
    kinds = tuple(RecordType)
    kind = data[0] % (len(kinds) + 2)
    if kind < len(kinds):
        CONSUMER_RECORDS.read_key(int16(kinds[kind]) + data[1:])
        CONSUMER_RECORDS.read_value(kinds[kind], data[1:])
    elif kind == len(kinds):
        read_offset_key(data[1:])
        read_offset_value(data[1:])
    else:
        read_group_key(data[1:])
        read_group_metadata(data[1:])


def feed_metadata(data: bytes) -> None:
    """Load a journal of one record per line into the cluster's metadata, and use the metadata."""
    metadata = ClusterMetadata(lambda _key, _value: 0, (1, 2))
    metadata.load(list(enumerate(data.splitlines())))
    metadata.open_cluster("another", 2, 1)
    for topic in list(metadata.topics.values()):
        assert all(metadata.leadership(each).leader_epoch > 0 for each in topic.topic_partitions())
        assert metadata.topic_by_id(topic.topic_id) is topic
    metadata.allocate_producer_ids()
