"""A request of every served API at every version, with every field set."""

from broker_core.broker.apis import SERVED
from broker_core.records.batch import NewRecord, build_batch
from broker_core.wire import messages as m
from tests.support.messages import EVERY_ACL, creation, filled

TOPIC, GROUP, ID = "t", "g", "id"


def both(name, topic_id, by_id):
    return {"topic_id": topic_id} if by_id else {"name": name}


def administration():
    """Return a request of each API for topics, leaders, folders of logs and the quorum."""
    pages, dirs = m.DescribeTopicPartitionsRequest, m.DescribeLogDirsRequest
    listed = m.ListPartitionReassignmentsRequest
    return {
        "DescribeTopicPartitions": lambda: filled(
            pages,
            topics=[{"name": TOPIC}],
            response_partition_limit=1,
            cursor={"topic_name": TOPIC, "partition_index": 0},
        ),
        "DescribeLogDirs": lambda: filled(dirs, topics=[{"topic": TOPIC, "partitions": [0]}]),
        "AlterReplicaLogDirs": lambda: filled(
            m.AlterReplicaLogDirsRequest, dirs=[{"path": "/memory", "topics": [{"name": TOPIC, "partitions": [0]}]}]
        ),
        "DescribeQuorum": lambda: filled(
            m.DescribeQuorumRequest,
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        ),
        "ElectLeaders": lambda: filled(
            m.ElectLeadersRequest,
            election_type=0,
            topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
            timeout_ms=1000,
        ),
        "AlterPartitionReassignments": lambda: filled(
            m.AlterPartitionReassignmentsRequest,
            timeout_ms=1000,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        ),
        "ListPartitionReassignments": lambda: filled(
            listed, timeout_ms=1000, topics=[{"name": TOPIC, "partition_indexes": [0]}]
        ),
        "UnregisterBroker": lambda: m.UnregisterBrokerRequest(broker_id=1),
        **tokens(),
    }


def tokens():
    """Return a request of each API for delegation tokens."""
    created, described = m.CreateDelegationTokenRequest, m.DescribeDelegationTokenRequest
    return {
        "CreateDelegationToken": lambda: filled(
            created,
            owner_principal_type="User",
            owner_principal_name="owner",
            renewers=[{"principal_type": "User", "principal_name": "renewer"}],
            max_lifetime_ms=1000,
        ),
        "RenewDelegationToken": lambda: m.RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=1000),
        "ExpireDelegationToken": lambda: m.ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=1000),
        "DescribeDelegationToken": lambda: filled(
            described, owners=[{"principal_type": "User", "principal_name": "owner"}]
        ),
    }


def shares(version, topic_id):
    """Return a request of each API for share groups."""

    def of_state(form, **fields):
        topic = {"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}
        return filled(form, group_id="shared", topics=[topic])

    return {
        "ShareGroupHeartbeat": lambda: m.ShareGroupHeartbeatRequest(
            group_id="shared", member_id="x", member_epoch=0, subscribed_topic_names=[TOPIC]
        ),
        "ShareGroupDescribe": lambda: m.ShareGroupDescribeRequest(
            group_ids=["sharers"], include_authorized_operations=True
        ),
        "ShareFetch": lambda: filled(
            m.ShareFetchRequest,
            group_id="shared",
            member_id="x",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            max_records=10,
            batch_size=10,
            topics=[{"topic_id": topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}],
            forgotten_topics_data=[],
        ),
        "ShareAcknowledge": lambda: filled(
            m.ShareAcknowledgeRequest,
            group_id="sharers",
            member_id="x",
            share_session_epoch=1,
            topics=[
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                    ],
                }
            ],
        ),
        "InitializeShareGroupState": lambda: of_state(
            m.InitializeShareGroupStateRequest, state_epoch=1, start_offset=0
        ),
        "ReadShareGroupState": lambda: of_state(m.ReadShareGroupStateRequest, leader_epoch=1),
        "WriteShareGroupState": lambda: of_state(
            m.WriteShareGroupStateRequest,
            state_epoch=1,
            leader_epoch=1,
            start_offset=0,
            **{"delivery_complete_count": 0} if version else {},
            state_batches=[{"first_offset": 0, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}],
        ),
        "DeleteShareGroupState": lambda: of_state(m.DeleteShareGroupStateRequest),
        "ReadShareGroupStateSummary": lambda: of_state(m.ReadShareGroupStateSummaryRequest, leader_epoch=1),
        "DescribeShareGroupOffsets": lambda: filled(
            m.DescribeShareGroupOffsetsRequest,
            groups=[{"group_id": "sharers", "topics": [{"topic_name": TOPIC, "partitions": [0]}]}],
        ),
        "AlterShareGroupOffsets": lambda: filled(
            m.AlterShareGroupOffsetsRequest,
            group_id="altered",
            topics=[{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 1}]}],
        ),
        "DeleteShareGroupOffsets": lambda: filled(
            m.DeleteShareGroupOffsetsRequest, group_id="altered", topics=[{"topic_name": TOPIC}]
        ),
    }


def full_requests(version, topic_id):
    """Return for each API a request that names a topic, group or transaction."""
    batch = build_batch([NewRecord(b"k", b"v", (), 1000)])
    metadata = m.MetadataRequest
    txn_commit = m.TxnOffsetCommitRequest
    add = m.AddPartitionsToTxnRequest
    joined = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]
    v = version
    return {
        "Produce": lambda: filled(
            m.ProduceRequest,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{**both(TOPIC, topic_id, v >= 13), "partition_data": [{"index": 0, "records": batch}]}],
        ),
        "Fetch": lambda: filled(
            m.FetchRequest,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            session_epoch=-1,
            forgotten_topics_data=[],
            topics=[
                {
                    **({"topic_id": topic_id} if v >= 13 else {"topic": TOPIC}),
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
                }
            ],
        ),
        "ListOffsets": lambda: filled(
            m.ListOffsetsRequest,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        ),
        "Metadata": lambda: filled(metadata, topics=[{"name": TOPIC}]),
        "OffsetCommit": lambda: filled(
            m.OffsetCommitRequest,
            group_id=GROUP,
            member_id="",
            topics=[
                {
                    **both(TOPIC, topic_id, v >= 10),
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ],
        ),
        "OffsetFetch": lambda: (
            filled(m.OffsetFetchRequest, group_id=GROUP, topics=[{"name": TOPIC, "partition_indexes": [0]}])
            if v < 8
            else filled(
                m.OffsetFetchRequest,
                groups=[{"group_id": GROUP, "topics": [{**both(TOPIC, topic_id, v >= 10), "partition_indexes": [0]}]}],
            )
        ),
        "FindCoordinator": lambda: (
            m.FindCoordinatorRequest(key=GROUP) if v < 4 else m.FindCoordinatorRequest(coordinator_keys=[GROUP])
        ),
        "JoinGroup": lambda: m.JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=joined
        ),
        "Heartbeat": lambda: m.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="x"),
        "LeaveGroup": lambda: (
            m.LeaveGroupRequest(group_id=GROUP, member_id="x")
            if v < 3
            else filled(m.LeaveGroupRequest, group_id=GROUP, members=[{"member_id": "x"}])
        ),
        "SyncGroup": lambda: m.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="x", assignments=[]),
        "DescribeGroups": lambda: m.DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True),
        "ListGroups": lambda: m.ListGroupsRequest(states_filter=[], types_filter=[]),
        "ApiVersions": lambda: m.ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        "CreateTopics": lambda: creation("new"),
        "DeleteTopics": lambda: (
            m.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000)
            if v < 6
            else filled(m.DeleteTopicsRequest, topics=[{"name": TOPIC, "topic_id": m.NULL_UUID}], timeout_ms=1000)
        ),
        "DeleteRecords": lambda: filled(
            m.DeleteRecordsRequest,
            timeout_ms=1000,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
        ),
        "InitProducerId": lambda: m.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000),
        "OffsetForLeaderEpoch": lambda: filled(
            m.OffsetForLeaderEpochRequest,
            topics=[{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        ),
        "AddPartitionsToTxn": lambda: (
            filled(
                add,
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=0,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
            )
            if v < 4
            else filled(
                add,
                transactions=[
                    {
                        "transactional_id": ID,
                        "producer_id": 0,
                        "producer_epoch": 0,
                        "verify_only": True,
                        "topics": [{"name": TOPIC, "partitions": [0]}],
                    }
                ],
            )
        ),
        "AddOffsetsToTxn": lambda: m.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=0, producer_epoch=0, group_id=GROUP
        ),
        "EndTxn": lambda: m.EndTxnRequest(transactional_id=ID, producer_id=0, producer_epoch=0, committed=True),
        "WriteTxnMarkers": lambda: filled(
            m.WriteTxnMarkersRequest,
            markers=[
                {
                    "producer_id": 5,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                }
            ],
        ),
        "TxnOffsetCommit": lambda: filled(
            txn_commit,
            transactional_id=ID,
            group_id=GROUP,
            producer_id=0,
            producer_epoch=0,
            topics=[
                {
                    "name": TOPIC,
                    "topic_id": topic_id,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ],
        ),
        "SaslHandshake": lambda: m.SaslHandshakeRequest(mechanism="PLAIN"),
        "SaslAuthenticate": lambda: m.SaslAuthenticateRequest(auth_bytes=b""),
        "DescribeUserScramCredentials": lambda: m.DescribeUserScramCredentialsRequest(users=None),
        "AlterUserScramCredentials": lambda: filled(
            m.AlterUserScramCredentialsRequest,
            deletions=[],
            upsertions=[
                {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
            ],
        ),
        "DescribeAcls": lambda: m.DescribeAclsRequest(**EVERY_ACL),
        "CreateAcls": lambda: filled(
            m.CreateAclsRequest,
            creations=[
                {
                    "resource_type": 2,
                    "resource_name": TOPIC,
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ],
        ),
        "DeleteAcls": lambda: filled(m.DeleteAclsRequest, filters=[EVERY_ACL]),
        "DescribeConfigs": lambda: filled(
            m.DescribeConfigsRequest,
            resources=[
                {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            ],
        ),
        "CreatePartitions": lambda: filled(
            m.CreatePartitionsRequest,
            timeout_ms=1000,
            validate_only=False,
            topics=[{"name": TOPIC, "count": 3, "assignments": None}],
        ),
        "DeleteGroups": lambda: m.DeleteGroupsRequest(groups_names=[GROUP]),
        "IncrementalAlterConfigs": lambda: filled(
            m.IncrementalAlterConfigsRequest,
            validate_only=False,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": TOPIC,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "77"}],
                }
            ],
        ),
        "AlterConfigs": lambda: filled(
            m.AlterConfigsRequest,
            validate_only=False,
            resources=[
                {"resource_type": 2, "resource_name": TOPIC, "configs": [{"name": "retention.ms", "value": "78"}]}
            ],
        ),
        "ListConfigResources": lambda: m.ListConfigResourcesRequest(resource_types=[]),
        "DescribeClientQuotas": lambda: m.DescribeClientQuotasRequest(components=[], strict=False),
        "AlterClientQuotas": lambda: filled(
            m.AlterClientQuotasRequest,
            validate_only=False,
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "ann"}],
                    "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
                }
            ],
        ),
        "UpdateFeatures": lambda: filled(
            m.UpdateFeaturesRequest,
            feature_updates=[
                {
                    "feature": "transaction.version",
                    "max_version_level": 1 if version else 2,
                    "allow_downgrade": True,
                    "upgrade_type": 2,
                }
            ],
        ),
        "OffsetDelete": lambda: m.OffsetDeleteRequest(group_id=GROUP, topics=[]),
        "DescribeCluster": lambda: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        "DescribeProducers": lambda: filled(
            m.DescribeProducersRequest, topics=[{"name": TOPIC, "partition_indexes": [0]}]
        ),
        "DescribeTransactions": lambda: m.DescribeTransactionsRequest(transactional_ids=[ID]),
        "ConsumerGroupHeartbeat": lambda: m.ConsumerGroupHeartbeatRequest(
            group_id="another",
            member_id="x",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            topic_partitions=[],
            subscribed_topic_names=[TOPIC],
            subscribed_topic_regex="t+" if v >= 1 else None,
        ),
        "ConsumerGroupDescribe": lambda: m.ConsumerGroupDescribeRequest(
            group_ids=[GROUP], include_authorized_operations=True
        ),
        "ListTransactions": lambda: m.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        **administration(),
        **shares(version, topic_id),
    }


VERSIONS = {api.name: range(api.min_version, api.max_version + 1) for api in SERVED.values()}
