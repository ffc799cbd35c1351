"""For any actions and losses, no partition has two readers, and the assignment converges (KIP-848)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.broker_core.consumer_group_world import TOPICS, Client, ConsumerWorld
from tests.support.examples import examples

NAMES = ("a", "b", "c")


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
