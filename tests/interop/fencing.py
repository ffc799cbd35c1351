"""The phases of a transaction in which one producer fences another."""

from collections.abc import Callable

from tests.interop.driver import Client, TransactionalProducer
from tests.interop.judge import FENCED, end, is_refused, make_topic
from tests.support.clients import READ_UNCOMMITTED, unique
from tests.support.interop_brokers import Running

PARTITIONS = 2
Step = Callable[[TransactionalProducer, str, str], object]
# The next call of the fenced producer; the first record of its transaction is in partition 0.
PHASES: dict[str, Step] = {
    "commit": lambda producer, topic, group: producer.commit(),
    "send": lambda producer, topic, group: producer.send(topic, "too late"),
    "add partitions": lambda producer, topic, group: producer.send(topic, "too late", partition=1),
    "send offsets": lambda producer, topic, group: producer.offsets(group, topic, 7),
}


def fences(kafka: Running, first: Client, second: Client, step: Step) -> None:
    """Let the second client take over the id of the first, during a transaction."""
    topic, group, transactional_id = make_topic(kafka, partitions=PARTITIONS), unique("group"), unique("id")
    old = first.producer(transactional_id).begin()
    old.send(topic, "of the first")
    new = second.producer(transactional_id).begin()
    new.send(topic, "of the second")
    is_refused(lambda: step(old, topic, group), FENCED)
    new.commit()
    end(kafka, topic, PARTITIONS)
    assert second.values(topic, partitions=PARTITIONS) == ["of the second"]
    assert sorted(second.values(topic, partitions=PARTITIONS, isolation=READ_UNCOMMITTED)) == [
        "of the first",
        "of the second",
    ]
    assert second.committed(group, topic) is None
