"""A journal of the cluster's own with every type of record."""

from functools import cache
from uuid import UUID

from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.metadata_records import shapes
from broker_core.security.acls import stored_acl
from broker_core.security.sasl_passwords import ScramCredential
from broker_core.types import TopicPartition

# They are there unless the feature is not.
OF_FEATURES = (
    {"type": "client_quota", "name": '[["client-id", null], ["user", "ann"]]', "values": {"producer_byte_rate": 5.0}},
    {
        "type": "delegation_token",
        "name": "token",
        "token": {
            "owner": ["User", "ann"],
            "requester": ["User", "bob"],
            "renewers": [["User", "carl"]],
            "times": [1, 3, 2],
        },
    },
    {"type": "delegation_token", "name": "token", "token": None},
)


@cache
def metadata_records() -> list[bytes]:
    """Return a cluster journal with every type of record, one a line, followed by each record by itself."""
    lines: list[bytes] = []

    def append(_key: bytes, value: bytes) -> int:
        lines.append(value)
        return len(lines) - 1

    metadata = ClusterMetadata(append, (1, 2))
    metadata.open_cluster("cluster", 1, 1)
    metadata.create_topic("t", UUID(int=1), 2, {"retention.ms": "5"})
    place = TopicPartition("t", 1)
    metadata.change_partition(place, metadata.leadership(place).reassigned([2, 3]))
    # The record of the topic then has the reassignment.
    metadata.configure_topic("t", {"retention.ms": "6"})
    metadata.raise_leader_epochs(3)
    metadata.create_topic("gone", UUID(int=2), 1, {})
    metadata.delete_topic("gone")
    metadata.allocate_producer_ids()
    acl = stored_acl(2, 3, "t", "User:ann", "*", 3, 3)
    metadata.create_acl(acl)
    metadata.delete_acl(acl)
    metadata.set_scram("SCRAM-SHA-256", "ann", ScramCredential(4096, b"salt", b"stored", b"server"))
    metadata.set_scram("SCRAM-SHA-256", "ann", None)
    metadata.configure(4, "1", {"log.retention.ms": "5"})
    for each in OF_FEATURES:
        if each["type"] in shapes():
            metadata.record(each)
    return [b"\n".join(lines), *lines]
