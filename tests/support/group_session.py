"""Single requests of the consumer group protocol, so that a test can be a member at any stage of its life."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from broker_core.coordinator.groups.classic.records import read_assignment, write_assignment
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from tests.support.clients import Kafka, make_topic, unique
from tests.support.messages import filled
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
        named = [{"name": topic, "topic_id": NO_ID} for topic in topics]
        fields = {"topics": named, "allow_auto_topic_creation": False}
        found = self._ask(12, m.MetadataRequest, **fields).topics if topics else []
        self.ids = {topic.name: topic.topic_id for topic in found}
        # The first request for a coordinator creates the offsets topic; no other request does.
        self._retry(
            lambda: self._ask(4, m.FindCoordinatorRequest, key_type=0, coordinator_keys=[group]),
            lambda answer: answer.coordinators[0].error_code,
        )

    def _ask(self, version: int, form: Any, **fields: Any) -> Any:
        """Send a request, whose nested parts are dicts, and return the response."""
        return self.client.send(filled(form, **fields), version)

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
        reported = None
        if owned is not None:
            reported = [{"topic_id": self.ids[topic], "partitions": sorted(owned[topic])} for topic in owned]
        fields |= {"member_id": member_id, "member_epoch": epoch, "topic_partitions": reported}
        answer = self._retry(
            lambda: self._ask(version, m.ConsumerGroupHeartbeatRequest, group_id=self.group, **fields),
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
        fields = {"group_ids": [self.group], "include_authorized_operations": True}
        return self._ask(version, m.ConsumerGroupDescribeRequest, **fields).groups[0]

    def commit(self, member_id: str, epoch: int, *partitions: int, version: int = 9) -> set[int]:
        """Send one OffsetCommit request for partitions of the first topic and return the set of its error codes."""
        answer = self._ask(
            version,
            m.OffsetCommitRequest,
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[self._committed(version >= 10, 5, *partitions or (0,))],
        )
        return {part.error_code for topic in answer.topics for part in topic.partitions}

    def _committed(self, by_id: bool, offset: int, *partitions: int) -> dict[str, Any]:
        """Return the same offset of partitions of the first topic in a request that commits them."""
        name = self.topics[0]
        parts = [
            {
                "partition_index": number,
                "committed_offset": offset,
            }
            for number in partitions
        ]
        return {"partitions": parts} | ({"topic_id": self.ids[name]} if by_id else {"name": name})

    def fetch(self, member_id: str | None, epoch: int, *, require_stable: bool = False) -> tuple[int, int | None]:
        """Send one OffsetFetch request for partition 0 of the first topic and return error code and offset."""
        group = {
            "group_id": self.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "topics": [{"name": self.topics[0], "partition_indexes": [0]}],
        }
        [answer] = self._ask(9, m.OffsetFetchRequest, require_stable=require_stable, groups=[group]).groups
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
        instance_id: str | None = None,
    ) -> int:
        """Send one TxnOffsetCommit and return its error code; retried while the previous transaction completes."""
        answer = self._retry(
            lambda: self._ask(
                version,
                m.TxnOffsetCommitRequest,
                transactional_id=transactional_id,
                group_id=self.group,
                **producer._asdict(),
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                group_instance_id=instance_id,
                topics=[self._committed(version >= 6, 7, partition)],
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
        metadata = subscription_to(self.topics[0], owned) if subscription is None else subscription
        usual: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
        }
        return self._ask(
            9,
            m.JoinGroupRequest,
            group_id=self.group,
            member_id=member_id,
            protocols=[{"name": name, "metadata": metadata} for name in protocols],
            **usual | fields,
        )

    def sync_classic(self, member_id: str, generation_id: int, **fields: Any) -> tuple[int, set[int] | None]:
        """Send one SyncGroup request; return its error code and the partitions of the first topic."""
        given = fields.pop("assignments", {})
        usual = {"group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range"}
        answer = self._ask(
            5,
            m.SyncGroupRequest,
            group_id=self.group,
            member_id=member_id,
            generation_id=generation_id,
            assignments=[
                {"member_id": each, "assignment": assignment_of(self.topics[0], numbers)}
                for each, numbers in given.items()
            ],
            **usual | fields,
        )
        if answer.error_code:
            return answer.error_code, None
        assigned = read_assignment(bytes(answer.assignment)).partitions
        return answer.error_code, {partition for topic, partition in assigned if topic == self.topics[0]}

    def heartbeat_classic(self, member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        """Send one Heartbeat request and return its error code."""
        fields = {"member_id": member_id, "generation_id": generation_id, "group_instance_id": instance_id}
        return int(self._ask(4, m.HeartbeatRequest, group_id=self.group, **fields).error_code)

    def enter_classic(self, **fields: Any) -> tuple[str, int]:
        """Join with the classic protocol, with a member id from the coordinator, and return id and generation."""
        member_id = "" if fields.get("group_instance_id") else self.join_classic(**fields).member_id
        joined = self.join_classic(member_id, **fields)
        assert joined.error_code == 0, joined
        return joined.member_id, joined.generation_id

    def describe_classic(self) -> Any:
        """Send one DescribeGroups request and return its part for the group."""
        fields = {"groups": [self.group], "include_authorized_operations": False}
        return self._ask(6, m.DescribeGroupsRequest, **fields).groups[0]

    def listing(self) -> tuple[str, str, str] | None:
        """Return the group's type, state and protocol type from the list of groups, None if it is not there."""
        groups = self._ask(5, m.ListGroupsRequest, states_filter=[], types_filter=[]).groups
        found = [each for each in groups if each.group_id == self.group]
        return (found[0].group_type, found[0].group_state, found[0].protocol_type) if found else None

    def leave_classic(self, member_id: str, instance_id: str | None = None) -> int:
        """Send one LeaveGroup request of the classic protocol and return the member's error code."""
        member = {"member_id": member_id, "group_instance_id": instance_id, "reason": ""}
        answer = self._ask(5, m.LeaveGroupRequest, group_id=self.group, members=[member])
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
