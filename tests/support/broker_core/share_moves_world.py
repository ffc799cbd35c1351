"""One share group on a cluster whose leaders and coordinators move, with time under the test's control."""

from typing import Any, NamedTuple

from broker_core.broker.cluster import Cluster
from broker_core.broker.fault_injection import FaultInjector
from broker_core.broker.metadata_records import ConfigResource
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.partitions.in_flight import RecordState
from broker_core.features.share_groups.partitions.share_partition import SharePartition
from broker_core.features.share_groups.states.coordinator import coordinator_key
from broker_core.features.share_groups.states.state import SharePartitionKey, ShareState
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.kip_world import Connection
from tests.support.broker_core.requests import produced
from tests.support.direct import DirectClient, direct_cluster
from tests.support.share_session import ACCEPT, RENEW, Range, ShareMember

GROUP, TOPIC, MEMBER = "group", "t", "member"
PLACE = TopicPartition(TOPIC, 0)
LOCK_MS = 30_000


class Fetched(NamedTuple):
    """The response for the partition, with its leader as the response names it."""

    error: ErrorCode
    acquired: list[Range]
    leader: tuple[int, int]
    endpoints: list[int]


class ShareMovesWorld:
    """A cluster of two brokers, a topic with five records, and a member that has its partition."""

    def __init__(
        self,
        *,
        settings: dict[str, str] | None = None,
        storage: Any = None,
        interceptor: FaultInjector | None = None,
    ) -> None:
        self._interceptor = interceptor
        self._settings = {"share.coordinator.state.topic.num.partitions": "1", **(settings or {})}
        self.cluster: Cluster = direct_cluster(storage, brokers=2, settings=self._settings)
        self.cluster.controller.create_topic(TOPIC, 1, replicas=[[1, 2]])
        self.cluster.metadata.configure(ConfigResource.GROUP, GROUP, {"share.auto.offset.reset": "earliest"})
        for name in (CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC):
            self.cluster.controller.ensure_topic(name)
        self.settle()
        self.topic_id = self.cluster.metadata.topics[TOPIC].topic_id
        self.key = SharePartitionKey(GROUP, self.topic_id, 0)
        find = self.cluster.controller.coordinator_partition_of
        self.group_place = find(CONSUMER_OFFSETS_TOPIC, GROUP)
        self.state_place = find(SHARE_GROUP_STATE_TOPIC, coordinator_key(self.key))
        self.epochs: dict[str, int] = {}
        # By member and broker.
        self._members: dict[tuple[str, int], ShareMember] = {}
        self.write(5)

    def restart(self, storage: Any) -> None:
        """Start the cluster again from its files; all connections are lost."""
        self.cluster = direct_cluster(storage, brokers=2, settings=self._settings, now_ms=self.cluster.now_ms)
        self._members.clear()
        self.epochs.clear()

    def settle(self) -> None:
        self.cluster.settle(self.cluster.now_ms)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and what is due happen."""
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    def leader(self, topic_partition: TopicPartition = PLACE) -> int:
        return self.cluster.metadata.leadership(topic_partition).leader

    def move(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Move a leader to the other broker; return the old one and the new one."""
        old = self.leader(topic_partition)
        self.cluster.controller.move_leader(topic_partition, 3 - old)
        self.settle()
        return old, 3 - old

    def write(self, count: int) -> None:
        """Append a batch to the partition."""
        records = [NewRecord(None, b"v", (), self.cluster.now_ms) for _ in range(count)]
        batch = build_batch(records)
        assert produced(self.client(self.leader(), "producer"), batch, version=11).error_code == 0

    def _member(self, broker: int, member: str) -> ShareMember:
        """Return a member with its connection to a broker."""
        found = self._members.get((member, broker))
        if found is None:
            connection = Connection(self.cluster, broker, interceptor=self._interceptor)
            found = self._members[member, broker] = ShareMember(connection, GROUP, TOPIC, member)
        return found

    def client(self, broker: int, member: str = MEMBER) -> DirectClient:
        """Return a member's connection to a broker."""
        connection = self._member(broker, member).client
        assert isinstance(connection, Connection)
        return connection.direct

    @property
    def coordinator_client(self) -> DirectClient:
        """Return an administrator's connection to the group coordinator."""
        return self.client(self.leader(self.group_place), "administrator")

    # Requests; each goes to the current leader or coordinator unless it names a broker

    def heartbeat(self, member: str = MEMBER, broker: int | None = None, epoch: int | None = None) -> Any:
        answer = self.client(broker or self.leader(self.group_place), member).ask(
            m.ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=member,
                member_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
                subscribed_topic_names=[TOPIC],
            ),
            1,
        )
        if answer.error_code == 0:
            self.epochs[member] = answer.member_epoch
        return answer

    def join(self, *members: str) -> "ShareMovesWorld":
        """Let members join until each has the partition."""
        for _ in range(6):
            answers = [self.heartbeat(member) for member in members or (MEMBER,)]
            if all(answer.assignment.topic_partitions for answer in answers):
                return self
            self.pass_ms(1_000)
        raise AssertionError(f"the partition is not assigned: {answers}")

    def fetch(self, member: str = MEMBER, broker: int | None = None) -> Fetched:
        """Fetch from a broker without waiting."""
        answer = self._member(broker or self.leader(), member).fetch(wait_ms=0)
        if answer.error_code:
            return Fetched(ErrorCode(answer.error_code), [], (0, 0), [])
        parts = [part for topic in answer.responses for part in topic.partitions]
        endpoints = [endpoint.node_id for endpoint in answer.node_endpoints]
        if not parts:
            return Fetched(ErrorCode.NONE, [], (0, 0), endpoints)
        [part] = parts
        acquired = [Range(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records]
        leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
        return Fetched(ErrorCode(part.error_code), acquired, leader, endpoints)

    def acknowledge(
        self, first: int, last: int, kind: int = ACCEPT, *, member: str = MEMBER, broker: int | None = None
    ) -> ErrorCode:
        """Acknowledge a range; return the error of the request or of the partition."""
        session = self._member(broker or self.leader(), member)
        return ErrorCode(session.acknowledge(first, last, kind, is_renewal=kind == RENEW))

    # State

    def state(self) -> ShareState:
        """Return the persisted state, as its coordinator has it."""
        return share_broker(self.cluster.brokers[self.leader(self.state_place)]).states.states()[self.key]

    def open_offsets(self) -> list[int]:
        """Return the offsets whose end is not recorded."""
        state = self.state()
        ended = {
            offset
            for each in state.batches
            if RecordState(each.delivery_state).is_terminal
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        end = self.cluster.logs.get(PLACE, self.cluster.now_ms).log_end_offset
        return [offset for offset in range(max(state.start_offset, 0), end) if offset not in ended]

    def in_memory(self, broker: int) -> SharePartition | None:
        """Return the share partition as a broker has it in memory."""
        found = share_broker(self.cluster.brokers[broker]).partitions.in_memory()
        return next((each for each in found if each.key == self.key), None)
