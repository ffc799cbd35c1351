"""Open transactions: those that a coordinator knows, and those that hang because no coordinator does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import apache_kafka
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.waiting import wait_until

# Without verification (KIP-890 part 1), a leader takes a late write for the beginning of a transaction.
HANGING_SETTINGS: Final = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.partition.verification.enable": "false",
}
# The highest versions of Kafka 3.6, which later brokers serve too: a client of transactions V1.
_CLASSIC_INIT, _CLASSIC_PRODUCE, _CLASSIC_END = 4, 9, 3


@contextmanager
def kafka_with_late_writes(kind: str, folder: Path) -> Iterator[str]:
    """Run a broker of this kind that accepts late writes, and yield its address; skip where it cannot run."""
    if kind == "broker_core":
        with EmbeddedBroker(config=HANGING_SETTINGS) as broker:
            yield broker.bootstrap_servers
        return
    with apache_kafka(HANGING_SETTINGS, folder) as node:
        yield node.bootstrap_servers


def open_up(session: RawSession, topic: str, *partitions: int, age_ms: int = 0) -> Identity:
    """Begin a transaction with one record in each partition (0 by default) and leave it to its coordinator.

    The record's timestamp may lie in the past; brokers and tools derive the age from it.
    """
    identity = session.init_until_done(version=_CLASSIC_INIT)
    session.add_until_done(identity, topic, *partitions)
    for partition in partitions or (0,):
        batch = record_batch([b"open"], identity, 0, timestamp_ms=_ago(age_ms))
        assert session.produce(topic, batch, version=_CLASSIC_PRODUCE, partition=partition)[0] == 0
    return identity


def hang(
    session: RawSession,
    topic: str,
    identity: Identity | None = None,
    *,
    partition: int = 0,
    age_ms: int = 0,
) -> Identity:
    """Write late, like an old client whose request the network delayed until after its EndTxn.

    The partition then has a committed transaction (a record and its marker), followed by one that hangs. With an
    explicit identity, no transaction is committed first, so the identity may be one that no broker has assigned.
    """
    sequence = 0
    if identity is None:
        identity = session.init_until_done(version=_CLASSIC_INIT)
        session.add_until_done(identity, topic, partition)
        batch = record_batch([b"in time"], identity, 0)
        assert session.produce(topic, batch, version=_CLASSIC_PRODUCE, partition=partition)[0] == 0
        assert session.end_until_done(identity, commit=True, version=_CLASSIC_END)[0] == 0
        wait_until(lambda: session.describe().transaction_state == "CompleteCommit", "the marker is written")
        sequence = 1
    late = record_batch([b"late"], identity, sequence, timestamp_ms=_ago(age_ms))
    assert session.produce(topic, late, version=_CLASSIC_PRODUCE, partition=partition)[0] == 0
    return identity


def _ago(age_ms: int) -> int:
    return int(time.time() * 1000) - age_ms
