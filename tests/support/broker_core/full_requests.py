"""A request of every served API at every version, made as the generated requests are."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from broker_core.records.batch import NewRecord, build_batch
from tests.support.messages import EVERY_ACL
from tests.support.request_generator import values
from tests.support.request_generator.cases import APIS, build, good_body

TOPIC, GROUP, ID = "t", "g", "id"
VERSIONS: Final = {name: range(api.min_version, api.max_version + 1) for name, api in APIS.items()}
# What stands for a value of the generator, whose topics, groups and ids are others.
_INSTEAD: Final[Mapping[Any, Any]] = {
    **values.renamed(TOPIC, GROUP, ID),
    **{values.Known(name): 0 for name in ("producer_id", "producer_epoch")},
    values.Batch(producer="producer_id"): build_batch([NewRecord(b"k", b"v", (), 1000)]),
}
_OF_ALL: Final[Mapping[str, Any]] = {
    "group_instance_id": None,
    "include_authorized_operations": True,
    "include_cluster_authorized_operations": True,
}
_USER: Final = {"principal_type": "User", "principal_name": "owner"}
_SHARED: Final[Mapping[str, Any]] = {"group_id": "shared", "member_id": "x", "partition_index": 0}
_STATE: Final[Mapping[str, Any]] = {"group_id": "shared", "partition": 0}
# What differs from the generated requests, by API.
_CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "Fetch": {"min_bytes": 0, "max_bytes": 1000, "partition_max_bytes": 1000},
    "OffsetCommit": {"committed_metadata": ""},
    "FindCoordinator": {"key": GROUP, "coordinator_keys": [GROUP], "key_type": 0},
    "JoinGroup": {"session_timeout_ms": 10_000},
    "CreateTopics": {"name": "new", "configs": [], "validate_only": False},
    "DeleteRecords": {"offset": 0},
    "AddPartitionsToTxn": {"verify_only": True},
    "WriteTxnMarkers": {"producer_id": 5},
    "TxnOffsetCommit": {"member_id": "", "committed_metadata": ""},
    "SaslAuthenticate": {"auth_bytes": b""},
    "DescribeUserScramCredentials": {"users": None},
    "DescribeAcls": EVERY_ACL,
    "CreateAcls": {"resource_name": TOPIC, "principal": "User:a"},
    "DeleteAcls": EVERY_ACL,
    "DescribeConfigs": {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((2, TOPIC), (4, "1"))
        ]
    },
    "CreatePartitions": {"validate_only": False},
    "ListConfigResources": {"resource_types": []},
    "DescribeClientQuotas": {"components": []},
    "AlterClientQuotas": {"entity_type": "user", "key": "producer_byte_rate", "value": 5.0},
    "ConsumerGroupHeartbeat": {"group_id": "another", "member_id": "x", "subscribed_topic_regex": "t+"},
    "UpdateFeatures": {"max_version_level": 1, "allow_downgrade": True, "upgrade_type": 2, "validate_only": False},
    "AlterReplicaLogDirs": {"path": "/memory"},
    "DescribeQuorum": {"topic_name": "__cluster_metadata", "partition_index": 0},
    "UnregisterBroker": {"broker_id": 1},
    "CreateDelegationToken": {
        "owner_principal_type": "User",
        "owner_principal_name": "owner",
        "renewers": [_USER],
        "max_lifetime_ms": 1000,
    },
    "RenewDelegationToken": {"hmac": b"token", "renew_period_ms": 1000},
    "ExpireDelegationToken": {"hmac": b"token", "expiry_time_period_ms": 1000},
    "DescribeDelegationToken": {"owners": [_USER]},
    "ShareGroupHeartbeat": _SHARED,
    "ShareGroupDescribe": {"group_ids": ["sharers"]},
    "ShareFetch": {**_SHARED, "max_bytes": 1000, "max_records": 10, "batch_size": 10},
    "ShareAcknowledge": {**_SHARED, "group_id": "sharers", "first_offset": 0, "last_offset": 0},
    "InitializeShareGroupState": {**_STATE, "state_epoch": 1},
    "ReadShareGroupState": {**_STATE, "leader_epoch": 1},
    "WriteShareGroupState": {**_STATE, "state_epoch": 1, "leader_epoch": 1, "last_offset": 1, "delivery_state": 2},
    "DeleteShareGroupState": _STATE,
    "ReadShareGroupStateSummary": {**_STATE, "leader_epoch": 1},
    "DescribeShareGroupOffsets": {"group_id": "sharers"},
    "AlterShareGroupOffsets": {"group_id": "idle"},
    "DeleteShareGroupOffsets": {"group_id": "idle"},
}
# What the oldest versions do not have.
_OF_VERSION_0: Final[Mapping[str, Mapping[str, Any]]] = {
    "ConsumerGroupHeartbeat": {"subscribed_topic_regex": None},
    "UpdateFeatures": {"max_version_level": 2},
}


def full_requests(version: int, topic_id: UUID) -> dict[str, Callable[[], Any]]:
    """Return for each API a request that names a topic, group or transaction."""
    return {name: partial(_full, name, version, topic_id) for name in APIS}


def _full(name: str, version: int, topic_id: UUID) -> Any:
    def value_of(value: Any) -> Any:
        if isinstance(value, values.Known) and value not in _INSTEAD:
            return topic_id
        return value if isinstance(value, dict) else _INSTEAD.get(value, value)

    changes = {**_OF_ALL, **_CHANGES.get(name, {}), **(_OF_VERSION_0.get(name, {}) if version == 0 else {})}
    return build(APIS[name], version, good_body(APIS[name], version, changes), value_of)
