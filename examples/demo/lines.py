"""The demo's input: the standard library's source files, sent to Kafka in transactions."""

import random
import re
import sysconfig
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Message, Producer

IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
# A key that no identifier can have: its count is the number of lines, including empty ones.
LINES_KEY = b"<lines>"

_LINES_PER_TRANSACTION = 5_000
_ABORTED_SHARE = 0.25


@dataclass
class Produced:
    """The counts of what the producers did."""

    committed: int = 0
    aborted: int = 0
    lines: int = 0
    aborted_lines: int = 0
    failures: list[BaseException] = field(default_factory=list)


def read_lines() -> list[bytes]:
    """Return every line of every source file of the standard library, without its line end."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in sorted(folder.rglob("*.py")) if "site-packages" not in path.parts)
    return [line for path in files for line in path.read_bytes().split(b"\n")]


def count_directly(lines: Sequence[bytes]) -> Counter[bytes]:
    """Count identifiers without Kafka and Spark: the expected result of the demo."""
    counts = Counter(IDENTIFIER.findall(b"\n".join(lines)))
    counts[LINES_KEY] = len(lines)
    return counts


def produce(
    bootstrap_servers: str, topic: str, lines: Sequence[bytes], producers: int, seed: int, done: Produced
) -> None:
    """Send the lines with several transactional producers at once, and count in `done` what they do.

    About every fourth transaction is aborted on purpose and its lines are sent again, so the topic contains them twice,
    and the transactions of the producers interleave in every partition.
    """
    lock = threading.Lock()
    chunks = [lines[i : i + _LINES_PER_TRANSACTION] for i in range(0, len(lines), _LINES_PER_TRANSACTION)]
    threads = [
        threading.Thread(
            target=_run_producer,
            args=(
                bootstrap_servers,
                topic,
                f"demo-lines-{index}",
                chunks[index::producers],
                random.Random(seed + index),
                done,
                lock,
            ),
        )
        for index in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if done.failures:
        raise done.failures[0]


def _run_producer(
    bootstrap_servers: str,
    topic: str,
    transactional_id: str,
    chunks: Sequence[Sequence[bytes]],
    chance: random.Random,
    done: Produced,
    lock: threading.Lock,
) -> None:
    try:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": transactional_id,
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )
        producer.init_transactions(30)
        for chunk in chunks:
            if chance.random() < _ABORTED_SHARE:
                sent = chunk[: chance.randrange(1, len(chunk) + 1)]
                _send(producer, topic, sent)
                producer.abort_transaction(30)
                with lock:
                    done.aborted += 1
                    done.aborted_lines += len(sent)
            _send(producer, topic, chunk)
            producer.commit_transaction(30)
            with lock:
                done.committed += 1
                done.lines += len(chunk)
    except BaseException as error:
        done.failures.append(error)


def _send(producer: Producer, topic: str, lines: Sequence[bytes]) -> None:
    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            raise KafkaException(error)

    producer.begin_transaction()
    for line in lines:
        producer.produce(topic, value=line, on_delivery=delivered)
    # An aborted transaction must have reached the log first, or there would be nothing to filter out.
    producer.flush(30)
