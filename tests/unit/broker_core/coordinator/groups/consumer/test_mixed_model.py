"""For any actions of clients of both protocols, no partition has two readers, and the assignment converges."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.classic.records import read_assignment, write_assignment
from broker_core.coordinator.groups.classic.requests import JoinResult, LeavingMember
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from tests.support.broker_core.consumer_group_world import Client, ConsumerWorld, Owned
from tests.support.broker_core.group_world import GROUP, Answer
from tests.support.examples import examples

FOREVER_MS = 1_000_000_000
ALL = [TopicPartition("t", number) for number in range(4)]


class ClassicClient:
    """A consumer with an eager assignor: it reads nothing from its JoinGroup to the answer of its SyncGroup."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._member_id = ""
        self._generation: int | None = None
        self._joining: Answer[JoinResult] | None = None
        self.reads: Owned = set()

    def beat(self) -> None:
        """Do what a client does next: join, sync or heartbeat."""
        if self._joining is not None:
            if not self._joining.waits:
                self._synchronize(self._joining.now)
        elif self._generation is None or self._world.heartbeat(self._member_id, self._generation) is not ErrorCode.NONE:
            self._join()

    def _join(self) -> None:
        self.reads = set()
        self._joining = self._world.join(
            self._member_id, client_id=self._name, session_timeout_ms=1_800_000, requires_known_member_id=True
        )

    def _synchronize(self, joined: JoinResult) -> None:
        self._joining = self._generation = None
        self._member_id = "" if joined.error is ErrorCode.UNKNOWN_MEMBER_ID else joined.member_id
        if joined.error is not ErrorCode.NONE:
            return
        names = sorted(member.member_id for member in joined.members)
        shares = {name: write_assignment(ALL[place :: len(names)], 0) for place, name in enumerate(names)}
        synced = self._world.sync(self._member_id, joined.generation_id, assignments=shares)
        if synced.waits:
            # The leader has not answered yet: this client gives up waiting, and joins again.
            return
        if synced.now.error is ErrorCode.NONE:
            self._generation = joined.generation_id
            self.reads = set(read_assignment(synced.now.assignment).partitions)

    def lose_connection(self) -> None:
        """Forget the request that waits for an answer, but not the member id of an answer that has arrived."""
        if self._joining is not None and not self._joining.waits:
            self._member_id = self._joining.now.member_id
        self._joining = None

    def leave(self) -> None:
        """Stop reading and leave the group."""
        self.reads = set()
        self.lose_connection()
        if self._member_id:
            self._world.leave(LeavingMember(self._member_id))
        self._member_id, self._generation = "", None


CLASSIC, CONSUMERS = ("x", "y"), ("a", "b")
actions = st.lists(
    st.tuples(
        st.sampled_from(CLASSIC + CONSUMERS),
        st.sampled_from([*["beat"] * 6, "take_in", "take_in", "leave", "fail_over"]),
    ),
    max_size=80,
)


@examples(150)
@given(st.sampled_from(["", "x", "xy", "a", "xa"]), actions, st.sampled_from(["classic", "consumer", "both"]))
def test_no_partition_has_two_owners_while_the_group_migrates(first: str, steps: list[tuple[str, str]], stays: str):
    world = ConsumerWorld(group_consumer_session_timeout_ms=FOREVER_MS)
    classic = {name: ClassicClient(world, name) for name in CLASSIC}
    consumers = {name: Client(world, name) for name in CONSUMERS}
    clients: dict[str, Client | ClassicClient] = {**classic, **consumers}
    settling = [(name, action) for name in first * 8 for action in ("beat", "take_in")]
    for name, action in [*settling, *steps]:
        if action == "fail_over":
            world.fail_over()
            for each in classic.values():
                each.lose_connection()
        elif action != "take_in":
            getattr(clients[name], action)()
        elif name in consumers:
            consumers[name].take_in()
        _check(clients)
    leaving: dict[str, Client | ClassicClient] = {"classic": {**consumers}, "consumer": {**classic}, "both": {}}[stays]
    for client in leaving.values():
        client.leave()
    staying = {name: client for name, client in clients.items() if name not in leaving}
    for _ in range(40):
        # A classic member whose departure a failover has forgotten is removed after its rebalance timeout.
        world.pass_ms(10_000)
        for name, client in staying.items():
            client.beat()
            if name in consumers:
                consumers[name].take_in()
            _check(clients)
    assert set().union(*(client.reads for client in staying.values())) == set(ALL)
    assert (GROUP in world.shard().groups) is (stays == "classic")


def _check(clients: dict[str, Client | ClassicClient]) -> None:
    reading = [partition for each in clients.values() for partition in each.reads]
    assert len(reading) == len(set(reading)), {name: client.reads for name, client in clients.items()}
