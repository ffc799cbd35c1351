"""For any actions of members in any order, each request gets one response and the group stays consistent."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, Answer, GroupWorld
from tests.support.examples import examples

CLIENTS = 4
# Clients 2 and 3 have an instance id; client 3 prefers another protocol.
INSTANCES = (None, None, "i", "j")
PROTOCOLS = ((("range", b""), ("sticky", b"")),) * 3 + ((("sticky", b""), ("range", b"")),)


class Client:
    """A client's view of the group, and its waiting requests."""

    def __init__(self, world: GroupWorld, number: int) -> None:
        self.world, self.number = world, number
        self.instance = INSTANCES[number]
        self.member_id = ""
        # A static member that returns gets the assignment of its former id (KIP-345).
        self.former_ids: set[str] = set()
        self.generation_id = -1
        self.answers: list[Answer[Any]] = []

    def join(self, knows_id: bool) -> None:
        """Join, without the member id as after a restart or with it."""
        answer = self.world.join(
            self.member_id if knows_id else "",
            client_id=f"c{self.number}",
            group_instance_id=self.instance,
            protocols=PROTOCOLS[self.number],
            requires_known_member_id=self.number == 1,
            session_timeout_ms=6_000 + 1_000 * self.number,
            rebalance_timeout_ms=9_000,
        )
        self.answers.append(answer)

    def sync(self) -> None:
        """Sync, as leader with an assignment for every member."""
        members = self.world.group().members if GROUP in self.world.shard().groups else {}
        assignments = {member: member.encode() for member in members}
        self.answers.append(
            self.world.sync(
                self.member_id, self.generation_id, group_instance_id=self.instance, assignments=assignments
            )
        )

    def heartbeat(self) -> None:
        self.world.heartbeat(self.member_id, self.generation_id, self.instance)

    def leave(self) -> None:
        self.world.leave(LeavingMember(self.member_id, self.instance))

    def learn(self) -> None:
        """Take in the responses that have arrived."""
        for answer in [answer for answer in self.answers if not answer.waits]:
            self.answers.remove(answer)
            result = answer.now
            if hasattr(result, "assignment"):
                assert result.error is not NONE or result.assignment.decode() in {"", self.member_id, *self.former_ids}
            elif result.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = result.member_id
            elif result.error is NONE:
                assert result.generation_id >= self.generation_id
                if self.instance is not None:
                    self.former_ids.add(self.member_id)
                self.member_id, self.generation_id = result.member_id, result.generation_id


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, CLIENTS - 1), st.booleans()),
        st.tuples(st.sampled_from(["sync", "heartbeat", "leave"]), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("sync"), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("pass"), st.sampled_from([100, 3_000, 8_000])),
        st.tuples(st.just("refuse_next")),
    ),
    max_size=60,
)


def check(world: GroupWorld, clients: Sequence[Client]) -> None:
    """Check the invariants between two requests."""
    waiting = sum(answer.waits for client in clients for answer in client.answers)
    group = world.shard().groups.get(GROUP)
    members = list(group.members.values()) if group else []
    parked = [member for member in members if member.join_reply or member.sync_reply]
    assert len(parked) == waiting
    if group is None:
        return
    assert all(group.state is GroupState.PREPARING_REBALANCE for member in parked if member.join_reply)
    assert all(group.state is GroupState.COMPLETING_REBALANCE for member in parked if member.sync_reply)
    assert (group.state is GroupState.EMPTY) <= (not members)
    assert not members or group.leader in group.members
    assert set(group.static_members.values()) == {m.member_id for m in members if m.group_instance_id}
    assert group.pending_syncs <= set(group.members)
    assert not group.pending_syncs or group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    assert not group.pending_joins & set(group.members)
    if group.state is GroupState.STABLE:
        restored = ClassicGroup.restored(GROUP, world.shard().recorded[GROUP])
        assert restored.record(0, {m.member_id: m.assignment for m in restored.members.values()}) == group.record(
            0, {m.member_id: m.assignment for m in members}
        )


@examples(400)
@given(OPERATIONS, st.sampled_from([0, 2_000]), st.sampled_from([2, 100]))
def test_every_request_is_answered_once(operations: Sequence[tuple[Any, ...]], delay_ms: int, max_size: int):
    world = GroupWorld(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
    clients = [Client(world, number) for number in range(CLIENTS)]
    for name, *arguments in operations:
        if name == "pass":
            world.pass_ms(arguments[0])
        elif name == "refuse_next":
            world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
        else:
            getattr(clients[arguments[0]], name)(*arguments[1:])
        for client in clients:
            client.learn()
        check(world, clients)
    world.journal.refuse_next = []
    world.pass_ms(1_000_000)
    assert not any(answer.waits for client in clients for answer in client.answers)
    assert GROUP not in world.shard().groups or world.group().members == {}


@examples(100)
@given(OPERATIONS)
def test_resignation_answers_all_delayed_requests(operations: Sequence[tuple[Any, ...]]):
    world = GroupWorld()
    clients = [Client(world, number) for number in range(CLIENTS)]
    for name, *arguments in operations:
        if name not in ("pass", "refuse_next"):
            getattr(clients[arguments[0]], name)(*arguments[1:])
    waiting = [answer for client in clients for answer in client.answers if answer.waits]
    world.coordinator.resign(0)
    assert {answer.now.error for answer in waiting} <= {ErrorCode.NOT_COORDINATOR}
    world.pass_ms(10_000_000)
    assert world.coordinator.next_deadline_ms() is None
