"""Leaders and coordinators move during transactions: with each client.

Apache Kafka runs as one node here, so only `broker_core` can run these tests; it has three broker ids.
"""

from collections.abc import Callable

import pytest

from broker_core import EmbeddedBroker
from tests.interop.copying import PARTITIONS, Job, make_job
from tests.interop.driver import Client
from tests.interop.judge import end, make_topic
from tests.support.clients import unique

Move = Callable[[EmbeddedBroker, Job], None]


def next_to(kafka: EmbeddedBroker, broker: int) -> int:
    """Return another broker."""
    return kafka.broker_ids[broker % len(kafka.broker_ids)]


def move_leaders(kafka: EmbeddedBroker, topic: str) -> None:
    """Move the leader of each partition to another broker."""
    for partition in range(PARTITIONS):
        kafka.move_leader((topic, partition), next_to(kafka, kafka.leader((topic, partition))))


def move_coordinator(kafka: EmbeddedBroker, **whose: str) -> None:
    """Move the coordinator of a transactional id or a group to another broker."""
    kafka.move_coordinator(next_to(kafka, kafka.coordinator(**whose)), **whose)


MOVES: dict[str, Move] = {
    "leaders of the source": lambda kafka, job: move_leaders(kafka, job.task.source),
    "leaders of the copy": lambda kafka, job: move_leaders(kafka, job.task.target),
    "coordinator of the transaction": lambda kafka, job: move_coordinator(
        kafka, transactional_id=job.task.transactional_id
    ),
    "coordinator of the group": lambda kafka, job: move_coordinator(kafka, group=job.task.group),
}


def test_leaders_and_coordinators_move_during_a_copy_and_every_input_is_copied_once(
    three_brokers: EmbeddedBroker, client: Client
):
    job = make_job(three_brokers)
    client.start_copying(job.task, abort_every=4)
    for name, move in MOVES.items():
        job.check_progress(f"before the {name}")
        move(three_brokers, job)
        job.check_progress(f"after the {name}")
    job.feed_last()
    client.finish_copying()
    job.assert_copied_once()


@pytest.mark.parametrize("commits", [False, True], ids=["aborted", "committed"])
@pytest.mark.parametrize("what", ["leader", "coordinator of the transaction", "coordinator of the group"])
def test_open_transaction_survives_a_move(three_brokers: EmbeddedBroker, client: Client, what: str, commits: bool):
    topic, group, transactional_id = make_topic(three_brokers), unique("group"), unique("id")
    producer = client.producer(transactional_id).begin()
    producer.send(topic, "before")
    producer.offsets(group, topic, 1)
    if what == "leader":
        three_brokers.move_leader((topic, 0), next_to(three_brokers, three_brokers.leader((topic, 0))))
    elif what == "coordinator of the group":
        move_coordinator(three_brokers, group=group)
    else:
        move_coordinator(three_brokers, transactional_id=transactional_id)
    assert three_brokers.transaction(transactional_id).state == "Ongoing"
    if what == "leader":
        producer.send(topic, "after")
    if commits:
        producer.commit()
    else:
        producer.abort()
    end(three_brokers, topic)
    wanted = ["before", "after"] if what == "leader" else ["before"]
    assert client.values(topic) == (wanted if commits else [])
    assert client.committed(group, topic) == ((1, "") if commits else None)
