"""Single requests of the consumer group protocol, so that a test can be a member at any stage of its life."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from broker_core.coordinator.groups.classic.records import read_assignment, write_assignment
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from tests.support.clients import Kafka, make_topic, unique
from tests.support.raw_client import RawClient
from tests.support.raw_session import LOADING, NOT_YET, Identity
from tests.support.waiting import wait_until

DEADLINE_S = 30
NO_ID = UUID(int=0)
REBALANCE_MS = 60_000
Partitions = Mapping[str, set[int]]
Result = TypeVar("Result")


def subscription_to(topic: str, owned: Collection[int] | None = None) -> bytes:
    """Encode a consumer's subscription to one topic; with `owned` in version 1, as cooperative assignors need."""
    name = len(topic).to_bytes(2, "big") + topic.encode()
    subscription = b"\0\0\0\1" + name + b"\xff\xff\xff\xff"
    if owned is None:
        return b"\0\0" + subscription
    return b"\0\1" + subscription + assignment_of(topic, owned)[2:-4]


def assignment_of(topic: str, partitions: Collection[int]) -> bytes:
    """Encode a consumer's assignment of one topic's partitions."""
    return write_assignment([TopicPartition(topic, number) for number in partitions], 0)


class Answer(NamedTuple):
    """The response to a heartbeat; `assigned` is None if the response has no assignment."""

    error: int
    member_epoch: int
    assigned: Partitions | None
    member_id: str | None
    heartbeat_interval_ms: int


class GroupSession:
    """One connection, and one consumer group that reads the given topics."""

    def __init__(self, client: RawClient, group: str, *topics: str):
        self.client = client
        self.group = group
        self.topics = topics
        found = (
            client.send(
                MetadataRequest(
                    topics=[MetadataRequest.MetadataRequestTopic(name=topic, topic_id=NO_ID) for topic in topics],
                    allow_auto_topic_creation=False,
                ),
                12,
            ).topics
            if topics
            else []
        )
        self.ids = {topic.name: topic.topic_id for topic in found}
        # The first request for a coordinator creates the offsets topic; no other request does.
        self._retry(
            lambda: client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4),
            lambda answer: answer.coordinators[0].error_code,
        )

    def join(self, member_id: str, **fields: Any) -> Answer:
        """Send the first heartbeat of a member, subscribed to all the topics by default."""
        full: dict[str, Any] = {"owned": {}, "rebalance_timeout_ms": REBALANCE_MS}
        if "subscribed_topic_regex" not in fields:
            full["subscribed_topic_names"] = list(self.topics)
        return self.heartbeat(member_id, 0, **full | fields)

    def heartbeat(
        self, member_id: str, epoch: int, *, owned: Partitions | None = None, version: int = 1, **fields: Any
    ) -> Answer:
        """Send one heartbeat; retried only while the coordinator loads."""
        form = m.ConsumerGroupHeartbeatRequest
        reported = (
            None
            if owned is None
            else [
                form.TopicPartitions(topic_id=self.ids[topic], partitions=sorted(numbers))
                for topic, numbers in owned.items()
            ]
        )
        answer = self._retry(
            lambda: self.client.send(
                form(group_id=self.group, member_id=member_id, member_epoch=epoch, topic_partitions=reported, **fields),
                version,
            ),
            lambda answer: answer.error_code,
        )
        return Answer(
            answer.error_code,
            answer.member_epoch,
            self._named(answer.assignment),
            answer.member_id,
            answer.heartbeat_interval_ms,
        )

    def _named(self, assignment: Any) -> Partitions | None:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return (
            None
            if assignment is None
            else {names[topic.topic_id]: set(topic.partitions) for topic in assignment.topic_partitions}
        )

    def settle(self, **members: int) -> dict[str, Partitions]:
        """Let the members (with their epochs) act as real ones do until the assignment is stable, and return it."""
        epochs = dict(members)
        has: dict[str, Partitions] = {}
        end = time.monotonic() + DEADLINE_S
        while True:
            for member_id, epoch in epochs.items():
                answer = self.heartbeat(member_id, epoch, owned=has.get(member_id, {}))
                assert answer.error == 0, (member_id, answer)
                epochs[member_id] = answer.member_epoch
                if answer.assigned is not None:
                    has[member_id] = answer.assigned
            if self.describe().group_state == "Stable":
                return has
            assert time.monotonic() < end, self.describe()

    def describe(self, version: int = 1) -> Any:
        """Send one ConsumerGroupDescribe request and return its part for the group."""
        return self.client.send(
            m.ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True), version
        ).groups[0]

    def commit(self, member_id: str, epoch: int, *partitions: int, version: int = 9) -> set[int]:
        """Send one OffsetCommit request for partitions of the first topic and return the set of its error codes."""
        form = m.OffsetCommitRequest
        topic = form.OffsetCommitRequestTopic
        name = self.topics[0]
        place = {"topic_id": self.ids[name]} if version >= 10 else {"name": name}
        answer = self.client.send(
            form(
                group_id=self.group,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                group_instance_id=None,
                topics=[
                    topic(
                        partitions=[
                            topic.OffsetCommitRequestPartition(
                                partition_index=number,
                                committed_offset=5,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                            for number in partitions or (0,)
                        ],
                        **place,
                    )
                ],
            ),
            version,
        )
        return {part.error_code for topic in answer.topics for part in topic.partitions}

    def fetch(self, member_id: str | None, epoch: int, *, require_stable: bool = False) -> tuple[int, int | None]:
        """Send one OffsetFetch request for partition 0 of the first topic and return error code and offset."""
        form = m.OffsetFetchRequest.OffsetFetchRequestGroup
        answer = self.client.send(
            m.OffsetFetchRequest(
                require_stable=require_stable,
                groups=[
                    form(
                        group_id=self.group,
                        member_id=member_id,
                        member_epoch=epoch,
                        topics=[form.OffsetFetchRequestTopics(name=self.topics[0], partition_indexes=[0])],
                    )
                ],
            ),
            9,
        ).groups[0]
        found = answer.topics[0].partitions[0] if answer.topics else None
        return answer.error_code or (found.error_code if found else 0), found.committed_offset if found else None

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: Identity,
        member_id: str,
        epoch: int,
        *,
        partition: int = 0,
        version: int = 5,
    ) -> int:
        """Send one TxnOffsetCommit and return its error code; retried while the previous transaction completes."""
        form = m.TxnOffsetCommitRequest
        topic = form.TxnOffsetCommitRequestTopic
        place = {"topic_id": self.ids[self.topics[0]]} if version >= 6 else {"name": self.topics[0]}
        part = topic.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
        )
        answer = self._retry(
            lambda: self.client.send(
                form(
                    transactional_id=transactional_id,
                    group_id=self.group,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    generation_id_or_member_epoch=epoch,
                    member_id=member_id,
                    group_instance_id=None,
                    topics=[topic(partitions=[part], **place)],
                ),
                version,
            ),
            lambda answer: answer.topics[0].partitions[0].error_code,
            NOT_YET,
        )
        return int(answer.topics[0].partitions[0].error_code)

    def join_classic(
        self,
        member_id: str = "",
        *,
        owned: Collection[int] | None = None,
        protocols: Collection[str] = ("range",),
        subscription: bytes | None = None,
        **fields: Any,
    ) -> Any:
        """Send one JoinGroup request of the classic protocol; `owned` are partitions of the first topic."""
        form = m.JoinGroupRequest
        metadata = subscription_to(self.topics[0], owned) if subscription is None else subscription
        usual: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "group_instance_id": None,
            "protocol_type": "consumer",
        }
        return self.client.send(
            form(
                group_id=self.group,
                member_id=member_id,
                protocols=[form.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
                **usual | fields,
            ),
            9,
        )

    def sync_classic(self, member_id: str, generation_id: int, **fields: Any) -> tuple[int, set[int] | None]:
        """Send one SyncGroup request; return its error code and the partitions of the first topic."""
        form = m.SyncGroupRequest
        given = fields.pop("assignments", {})
        usual = {"group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range"}
        answer = self.client.send(
            form(
                group_id=self.group,
                member_id=member_id,
                generation_id=generation_id,
                assignments=[
                    form.SyncGroupRequestAssignment(member_id=each, assignment=assignment_of(self.topics[0], numbers))
                    for each, numbers in given.items()
                ],
                **usual | fields,
            ),
            5,
        )
        if answer.error_code:
            return answer.error_code, None
        assigned = read_assignment(bytes(answer.assignment)).partitions
        return answer.error_code, {partition for topic, partition in assigned if topic == self.topics[0]}

    def heartbeat_classic(self, member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        """Send one Heartbeat request and return its error code."""
        form = m.HeartbeatRequest
        request = form(
            group_id=self.group, member_id=member_id, generation_id=generation_id, group_instance_id=instance_id
        )
        return int(self.client.send(request, 4).error_code)

    def enter_classic(self, **fields: Any) -> tuple[str, int]:
        """Join with the classic protocol, with a member id from the coordinator, and return id and generation."""
        member_id = "" if fields.get("group_instance_id") else self.join_classic(**fields).member_id
        joined = self.join_classic(member_id, **fields)
        assert joined.error_code == 0, joined
        return joined.member_id, joined.generation_id

    def describe_classic(self) -> Any:
        """Send one DescribeGroups request and return its part for the group."""
        form = m.DescribeGroupsRequest
        return self.client.send(form(groups=[self.group], include_authorized_operations=False), 6).groups[0]

    def listing(self) -> tuple[str, str, str] | None:
        """Return the group's type, state and protocol type from the list of groups, None if it is not there."""
        groups = self.client.send(m.ListGroupsRequest(states_filter=[], types_filter=[]), 5).groups
        found = [each for each in groups if each.group_id == self.group]
        return (found[0].group_type, found[0].group_state, found[0].protocol_type) if found else None

    def leave_classic(self, member_id: str, instance_id: str | None = None) -> int:
        """Send one LeaveGroup request of the classic protocol and return the member's error code."""
        form = m.LeaveGroupRequest
        answer = self.client.send(
            form(
                group_id=self.group,
                members=[form.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason="")],
            ),
            5,
        )
        return int(answer.members[0].error_code)

    @staticmethod
    def _retry(call: Callable[[], Result], code: Callable[[Result], int], codes: frozenset[int] = LOADING) -> Result:
        end = time.monotonic() + DEADLINE_S
        while True:
            answer = call()
            if code(answer) not in codes or time.monotonic() > end:
                return answer
            time.sleep(0.02)


def assignable_topic(kafka: Kafka, partitions: int) -> str:
    """Create a topic and wait until the group coordinator knows it, which takes a moment in Apache Kafka."""
    name = make_topic(kafka, partitions=partitions)
    with RawClient(kafka.bootstrap_servers) as client:
        wait_until(lambda: GroupSession(client, unique("probe"), name).join("a").assigned, f"{name} can be assigned")
    return name
