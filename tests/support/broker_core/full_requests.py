"""A request of every served API at every version, with every field set."""

from typing import Any

from broker_core.broker.apis import SERVED
from broker_core.records.batch import NewRecord, build_batch
from broker_core.wire import messages as m

TOPIC, GROUP, ID = "t", "g", "id"
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def both(name, topic_id, by_id):
    return {"topic_id": topic_id} if by_id else {"name": name}


def administration():
    """Return a request of each API for topics, leaders, folders of logs and the quorum."""
    pages, dirs, quorum = m.DescribeTopicPartitionsRequest, m.DescribeLogDirsRequest, m.DescribeQuorumRequest.TopicData
    moved = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    reassigned = m.AlterPartitionReassignmentsRequest.ReassignableTopic
    listed = m.ListPartitionReassignmentsRequest
    return {
        "DescribeTopicPartitions": lambda: pages(
            topics=[pages.TopicRequest(name=TOPIC)],
            response_partition_limit=1,
            cursor=pages.Cursor(topic_name=TOPIC, partition_index=0),
        ),
        "DescribeLogDirs": lambda: dirs(topics=[dirs.DescribableLogDirTopic(topic=TOPIC, partitions=[0])]),
        "AlterReplicaLogDirs": lambda: m.AlterReplicaLogDirsRequest(
            dirs=[moved(path="/memory", topics=[moved.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]
        ),
        "DescribeQuorum": lambda: m.DescribeQuorumRequest(
            topics=[quorum(topic_name="__cluster_metadata", partitions=[quorum.PartitionData(partition_index=0)])]
        ),
        "ElectLeaders": lambda: m.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])],
            timeout_ms=1000,
        ),
        "AlterPartitionReassignments": lambda: m.AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                reassigned(name=TOPIC, partitions=[reassigned.ReassignablePartition(partition_index=0, replicas=[1])])
            ],
        ),
        "ListPartitionReassignments": lambda: listed(
            timeout_ms=1000, topics=[listed.ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=[0])]
        ),
        "UnregisterBroker": lambda: m.UnregisterBrokerRequest(broker_id=1),
        **tokens(),
    }


def tokens():
    """Return a request of each API for delegation tokens."""
    created, described = m.CreateDelegationTokenRequest, m.DescribeDelegationTokenRequest
    return {
        "CreateDelegationToken": lambda: created(
            owner_principal_type="User",
            owner_principal_name="owner",
            renewers=[created.CreatableRenewers(principal_type="User", principal_name="renewer")],
            max_lifetime_ms=1000,
        ),
        "RenewDelegationToken": lambda: m.RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=1000),
        "ExpireDelegationToken": lambda: m.ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=1000),
        "DescribeDelegationToken": lambda: described(
            owners=[described.DescribeDelegationTokenOwner(principal_type="User", principal_name="owner")]
        ),
    }


def shares(version, topic_id):
    """Return a request of each API for share groups."""
    fetch, acknowledge = m.ShareFetchRequest, m.ShareAcknowledgeRequest.AcknowledgeTopic
    initialize, read = m.InitializeShareGroupStateRequest, m.ReadShareGroupStateRequest
    write, delete = m.WriteShareGroupStateRequest, m.DeleteShareGroupStateRequest
    summary, offsets = m.ReadShareGroupStateSummaryRequest, m.DescribeShareGroupOffsetsRequest
    group = offsets.DescribeShareGroupOffsetsRequestGroup
    altered = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic

    def topics(kind, **fields):
        partition = kind.PartitionData(partition=0, **fields)
        return {"group_id": "shared", "topics": [kind(topic_id=topic_id, partitions=[partition])]}

    batch = write.WriteStateData.PartitionData.StateBatch
    return {
        "ShareGroupHeartbeat": lambda: m.ShareGroupHeartbeatRequest(
            group_id="shared", member_id="x", member_epoch=0, subscribed_topic_names=[TOPIC]
        ),
        "ShareGroupDescribe": lambda: m.ShareGroupDescribeRequest(
            group_ids=["sharers"], include_authorized_operations=True
        ),
        "ShareFetch": lambda: fetch(
            group_id="shared",
            member_id="x",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            max_records=10,
            batch_size=10,
            topics=[
                fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[fetch.FetchTopic.FetchPartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
            forgotten_topics_data=[],
        ),
        "ShareAcknowledge": lambda: m.ShareAcknowledgeRequest(
            group_id="sharers",
            member_id="x",
            share_session_epoch=1,
            topics=[
                acknowledge(
                    topic_id=topic_id,
                    partitions=[
                        acknowledge.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                acknowledge.AcknowledgePartition.AcknowledgementBatch(
                                    first_offset=0, last_offset=0, acknowledge_types=[1]
                                )
                            ],
                        )
                    ],
                )
            ],
        ),
        "InitializeShareGroupState": lambda: initialize(
            **topics(initialize.InitializeStateData, state_epoch=1, start_offset=0)
        ),
        "ReadShareGroupState": lambda: read(**topics(read.ReadStateData, leader_epoch=1)),
        "WriteShareGroupState": lambda: write(
            **topics(
                write.WriteStateData,
                state_epoch=1,
                leader_epoch=1,
                start_offset=0,
                **({"delivery_complete_count": 0} if version else {}),
                state_batches=[batch(first_offset=0, last_offset=1, delivery_state=2, delivery_count=1)],
            )
        ),
        "DeleteShareGroupState": lambda: delete(**topics(delete.DeleteStateData)),
        "ReadShareGroupStateSummary": lambda: summary(**topics(summary.ReadStateSummaryData, leader_epoch=1)),
        "DescribeShareGroupOffsets": lambda: offsets(
            groups=[
                group(
                    group_id="sharers",
                    topics=[group.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])],
                )
            ]
        ),
        "AlterShareGroupOffsets": lambda: m.AlterShareGroupOffsetsRequest(
            group_id="altered",
            topics=[
                altered(
                    topic_name=TOPIC,
                    partitions=[altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)],
                )
            ],
        ),
        "DeleteShareGroupOffsets": lambda: m.DeleteShareGroupOffsetsRequest(
            group_id="altered",
            topics=[m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)],
        ),
    }


def full_requests(version, topic_id):
    """Return for each API a request that names a topic, group or transaction."""
    batch = build_batch([NewRecord(b"k", b"v", (), 1000)])
    produce, fetch, metadata = m.ProduceRequest.TopicProduceData, m.FetchRequest.FetchTopic, m.MetadataRequest
    commit, txn_commit = m.OffsetCommitRequest.OffsetCommitRequestTopic, m.TxnOffsetCommitRequest
    fetch_group = m.OffsetFetchRequest.OffsetFetchRequestGroup
    txn_topic = txn_commit.TxnOffsetCommitRequestTopic
    add = m.AddPartitionsToTxnRequest
    verified = add.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
    resources = m.DescribeConfigsRequest.DescribeConfigsResource
    alter = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    quotas = m.AlterClientQuotasRequest.EntryData
    joined = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker
    v = version
    return {
        "Produce": lambda: m.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                produce(
                    **both(TOPIC, topic_id, v >= 13),
                    partition_data=[produce.PartitionProduceData(index=0, records=batch)],
                )
            ],
        ),
        "Fetch": lambda: m.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            session_epoch=-1,
            forgotten_topics_data=[],
            topics=[
                fetch(
                    **({"topic_id": topic_id} if v >= 13 else {"topic": TOPIC}),
                    partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        ),
        "ListOffsets": lambda: m.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                m.ListOffsetsRequest.ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[
                        m.ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
                    ],
                )
            ],
        ),
        "Metadata": lambda: metadata(topics=[metadata.MetadataRequestTopic(name=TOPIC)]),
        "OffsetCommit": lambda: m.OffsetCommitRequest(
            group_id=GROUP,
            member_id="",
            topics=[
                commit(
                    **both(TOPIC, topic_id, v >= 10),
                    partitions=[
                        commit.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        "OffsetFetch": lambda: (
            m.OffsetFetchRequest(
                group_id=GROUP, topics=[m.OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
            )
            if v < 8
            else m.OffsetFetchRequest(
                groups=[
                    fetch_group(
                        group_id=GROUP,
                        topics=[
                            fetch_group.OffsetFetchRequestTopics(
                                **both(TOPIC, topic_id, v >= 10), partition_indexes=[0]
                            )
                        ],
                    )
                ]
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
            else m.LeaveGroupRequest(group_id=GROUP, members=[m.LeaveGroupRequest.MemberIdentity(member_id="x")])
        ),
        "SyncGroup": lambda: m.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="x", assignments=[]),
        "DescribeGroups": lambda: m.DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True),
        "ListGroups": lambda: m.ListGroupsRequest(states_filter=[], types_filter=[]),
        "ApiVersions": lambda: m.ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        "CreateTopics": lambda: m.CreateTopicsRequest(
            topics=[
                m.CreateTopicsRequest.CreatableTopic(
                    name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            timeout_ms=1000,
        ),
        "DeleteTopics": lambda: (
            m.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000)
            if v < 6
            else m.DeleteTopicsRequest(
                topics=[m.DeleteTopicsRequest.DeleteTopicState(name=TOPIC, topic_id=m.NULL_UUID)], timeout_ms=1000
            )
        ),
        "DeleteRecords": lambda: m.DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                m.DeleteRecordsRequest.DeleteRecordsTopic(
                    name=TOPIC,
                    partitions=[
                        m.DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=0)
                    ],
                )
            ],
        ),
        "InitProducerId": lambda: m.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000),
        "OffsetForLeaderEpoch": lambda: m.OffsetForLeaderEpochRequest(
            topics=[
                m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[
                        m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                            partition=0, leader_epoch=0
                        )
                    ],
                )
            ]
        ),
        "AddPartitionsToTxn": lambda: (
            add(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=0,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[add.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            )
            if v < 4
            else add(
                transactions=[
                    add.AddPartitionsToTxnTransaction(
                        transactional_id=ID,
                        producer_id=0,
                        producer_epoch=0,
                        verify_only=True,
                        topics=[verified(name=TOPIC, partitions=[0])],
                    )
                ]
            )
        ),
        "AddOffsetsToTxn": lambda: m.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=0, producer_epoch=0, group_id=GROUP
        ),
        "EndTxn": lambda: m.EndTxnRequest(transactional_id=ID, producer_id=0, producer_epoch=0, committed=True),
        "WriteTxnMarkers": lambda: m.WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=5,
                    producer_epoch=0,
                    transaction_result=False,
                    coordinator_epoch=0,
                    topics=[marker.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
                )
            ]
        ),
        "TxnOffsetCommit": lambda: txn_commit(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=0,
            producer_epoch=0,
            topics=[
                txn_topic(
                    name=TOPIC,
                    topic_id=topic_id,
                    partitions=[
                        txn_topic.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        "SaslHandshake": lambda: m.SaslHandshakeRequest(mechanism="PLAIN"),
        "SaslAuthenticate": lambda: m.SaslAuthenticateRequest(auth_bytes=b""),
        "DescribeUserScramCredentials": lambda: m.DescribeUserScramCredentialsRequest(users=None),
        "AlterUserScramCredentials": lambda: m.AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name="a", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
                )
            ],
        ),
        "DescribeAcls": lambda: m.DescribeAclsRequest(**ANY_ACL),
        "CreateAcls": lambda: m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequest.AclCreation(
                    resource_type=2, resource_name=TOPIC, principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        "DeleteAcls": lambda: m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL)]),
        "DescribeConfigs": lambda: m.DescribeConfigsRequest(
            resources=[
                resources(resource_type=2, resource_name=TOPIC, configuration_keys=None),
                resources(resource_type=4, resource_name="1", configuration_keys=None),
            ]
        ),
        "CreatePartitions": lambda: m.CreatePartitionsRequest(
            timeout_ms=1000,
            validate_only=False,
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
        ),
        "DeleteGroups": lambda: m.DeleteGroupsRequest(groups_names=[GROUP]),
        "IncrementalAlterConfigs": lambda: m.IncrementalAlterConfigsRequest(
            validate_only=False,
            resources=[
                alter(
                    resource_type=2,
                    resource_name=TOPIC,
                    configs=[alter.AlterableConfig(name="retention.ms", config_operation=0, value="77")],
                )
            ],
        ),
        "AlterConfigs": lambda: m.AlterConfigsRequest(
            validate_only=False,
            resources=[
                m.AlterConfigsRequest.AlterConfigsResource(
                    resource_type=2,
                    resource_name=TOPIC,
                    configs=[
                        m.AlterConfigsRequest.AlterConfigsResource.AlterableConfig(name="retention.ms", value="78")
                    ],
                )
            ],
        ),
        "ListConfigResources": lambda: m.ListConfigResourcesRequest(resource_types=[]),
        "DescribeClientQuotas": lambda: m.DescribeClientQuotasRequest(components=[], strict=False),
        "AlterClientQuotas": lambda: m.AlterClientQuotasRequest(
            validate_only=False,
            entries=[
                quotas(
                    entity=[quotas.EntityData(entity_type="user", entity_name="ann")],
                    ops=[quotas.OpData(key="producer_byte_rate", value=5.0, remove=False)],
                )
            ],
        ),
        "UpdateFeatures": lambda: m.UpdateFeaturesRequest(
            feature_updates=[
                m.UpdateFeaturesRequest.FeatureUpdateKey(
                    feature="transaction.version",
                    max_version_level=1 if version else 2,
                    allow_downgrade=True,
                    upgrade_type=2,
                )
            ]
        ),
        "OffsetDelete": lambda: m.OffsetDeleteRequest(group_id=GROUP, topics=[]),
        "DescribeCluster": lambda: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        "DescribeProducers": lambda: m.DescribeProducersRequest(
            topics=[m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
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
