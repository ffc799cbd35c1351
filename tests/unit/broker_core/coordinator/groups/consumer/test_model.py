"""For any actions and losses, no partition has two readers, and the assignment converges (KIP-848)."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import ErrorCode
from tests.support.broker_core.consumer_group_world import LEAVE, ConsumerWorld, Owned
from tests.support.examples import examples

NAMES = ("a", "b", "c")
TOPICS = (("t",), ("t", "u"), ("u",))


class Client:
    """A consumer that reads its previous assignment until it has taken in the current one."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        self._world = world
        self._name = name
        self.topics = TOPICS[0]
        self.epoch: int | None = None
        self._reset()

    def _reset(self) -> None:
        self.assigned: Owned = set()
        self.reads: Owned = set()
        self._tells_all = True

    def beat(self, *, is_lost: bool = False) -> None:
        """Send a heartbeat; with `is_lost` its response does not arrive, so that the next heartbeat has all fields."""
        if self.epoch is None:
            self._reset()
        full = {"topics": self.topics, "rebalance_timeout_ms": 10**9} if self._tells_all else {}
        answer = self._world.beat(self._name, self.epoch or 0, owned=set(self.reads), **full)
        if is_lost:
            self._tells_all = True
        elif answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = None
            self._reset()
        else:
            assert answer.error is ErrorCode.NONE, answer
            self.epoch = answer.member_epoch
            self._tells_all = False
            if answer.assigned is not None:
                self.assigned = self._world.named(answer) or set()

    def take_in(self) -> None:
        """Stop reading revoked partitions and start reading new ones."""
        self.reads = set(self.assigned)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Change the subscription from the next heartbeat on."""
        self.topics = topics
        self._tells_all = True

    def leave(self) -> None:
        """Stop reading and leave the group."""
        self._reset()
        if self.epoch is not None:
            self._world.beat(self._name, LEAVE)
        self.epoch = None


actions = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["beat", "beat", "take_in", "lost", "leave", "subscribe", "fail_over"]),
        st.sampled_from(TOPICS),
    ),
    max_size=60,
)


@examples(80)
@given(actions)
def test_no_partition_has_two_owners_and_all_members_converge(steps):
    world = ConsumerWorld(group_consumer_session_timeout_ms=10**9)
    clients = {name: Client(world, name) for name in NAMES}
    for name, action, topics in steps:
        client = clients[name]
        if action == "lost":
            client.beat(is_lost=True)
        elif action == "subscribe":
            client.subscribe(topics)
        elif action == "fail_over":
            world.fail_over()
        else:
            getattr(client, action)()
        reading = [partition for each in clients.values() for partition in each.reads]
        assert len(reading) == len(set(reading)), (name, action)
    _come_to_rest(world, clients)


def _come_to_rest(world: ConsumerWorld, clients: dict[str, Client]) -> None:
    for _ in range(30):
        for client in clients.values():
            client.beat()
            client.take_in()
    assert world.consumers.state.value == "Stable"
    subscribed = {name for client in clients.values() for name in client.topics}
    everything = {
        (name, number) for name, count in (("t", 4), ("u", 3)) if name in subscribed for number in range(count)
    }
    assert set().union(*(client.reads for client in clients.values())) == everything
    assert all(name in client.topics for client in clients.values() for name, _ in client.reads)
