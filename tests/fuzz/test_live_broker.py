"""Attacks on a broker process while a transactional producer works: only the attacker is affected."""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import cramjam
import pytest
from confluent_kafka import Producer
from hypothesis import given

from broker_core.errors import ErrorCode
from broker_core.records.compression import Compression
from broker_core.wire import messages as m
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.fuzz import seeds
from tests.fuzz.attacks import A_MILLION_ARRAYS, MALFORMED_FRAMES, batch, hostile
from tests.support.broker_processes import BrokerCore
from tests.support.examples import examples
from tests.support.memory import resident_mib
from tests.support.raw_client import RawClient
from tests.support.spark_eos.client_world import make_topic, read_values, unique
from tests.support.waiting import wait_until

MIB = 1 << 20
DEADLINE_S = 60
# A batch may decompress to 100 MiB before it is refused, into a buffer that grows by copying; others need little.
_MOST_MIB = 320
_SPOILED_FRAMES = 1_500
_HALF_FRAMES = 100


class Worker:
    """A producer of consecutive transactions that records the committed values."""

    def __init__(self, address: str, topic: str) -> None:
        self.committed: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._problem: Exception | None = None
        self._producer = Producer({
            "bootstrap.servers": address, "transactional.id": unique("worker"), "linger.ms": 0, "log_level": 0,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._producer.init_transactions(DEADLINE_S)
        self._thread.start()
        self.wait_for_progress()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        if kind is None and self._problem is not None:
            raise self._problem

    def wait_for_progress(self) -> None:
        """Wait until one more transaction that began after this call is committed."""
        expected = len(self.committed) + 21
        wait_until(
            lambda: len(self.committed) >= expected or self._problem, "the worker continues", deadline_s=DEADLINE_S
        )
        assert self._problem is None, self._problem

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                values = [str(len(self.committed) + number) for number in range(10)]
                self._producer.begin_transaction()
                for value in values:
                    self._producer.produce(self._topic, value)
                self._producer.commit_transaction(DEADLINE_S)
                self.committed += values
                # It shows that others are served, and need not keep a processor busy during long attacks.
                self._stop.wait(0.02)
        except Exception as problem:
            self._problem = problem


class Attacked(BrokerCore):
    """A broker whose peak memory can be read."""

    def peak_mib(self) -> float:
        """Return the peak memory of the process in MiB."""
        assert self._process is not None
        if sys.platform != "linux":
            pytest.skip("the memory of a process needs /proc")
        return resident_mib("VmHWM", self._process.pid)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with contextlib.closing(Attacked(tmp_path_factory.mktemp("attacked") / "broker")) as running:
        running.start()
        yield running


@pytest.fixture(scope="module")
def client(broker: Attacked) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((broker.address,))) as client:
        yield client


@pytest.fixture
def unaffected(broker: Attacked, client: KafkaClient) -> Iterator[Worker]:
    """Run a producer during the test; check that its values are complete and in order and that memory use is low."""
    topic = make_topic(client)
    with Worker(broker.address, topic) as worker:
        before_mib = broker.peak_mib()
        yield worker
        worker.wait_for_progress()
    assert read_values(broker.address, topic) == [worker.committed]
    assert broker.peak_mib() < before_mib + _MOST_MIB


def connected(broker: Attacked) -> socket.socket:
    host, _, port = broker.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def read_to_the_end(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("name", MALFORMED_FRAMES)
def test_malformed_frame_closes_its_connection(name: str, broker: Attacked, unaffected: Worker) -> None:
    with connected(broker) as attacker:
        attacker.sendall(MALFORMED_FRAMES[name])
        read_to_the_end(attacker)
        unaffected.wait_for_progress()


BOMBS = {
    "zstd": (Compression.ZSTD, lambda size: cramjam.zstd.compress(bytes(size)), 2048),
    "gzip": (Compression.GZIP, lambda size: cramjam.gzip.compress(bytes(size)), 512),
    "lz4": (Compression.LZ4, lambda size: cramjam.lz4.compress(bytes(size)), 128),
    "snappy": (Compression.SNAPPY, lambda size: cramjam.snappy.compress_raw(bytes(size)), 16),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_decompression_bomb_is_refused_without_decompression(
    codec: str, broker: Attacked, client: KafkaClient, unaffected: Worker
) -> None:
    number, compress, mib = BOMBS[codec]
    topic = make_topic(client)
    records = batch(bytes(compress(mib * MIB)), count=1, codec=number)
    assert len(records) < MIB, "the batch would be refused for its size alone"
    topics = m.ProduceRequest.TopicProduceData
    request = m.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[topics(name=topic, partition_data=[topics.PartitionProduceData(index=0, records=records)])],
    )
    with RawClient(broker.address, deadline_s=DEADLINE_S) as attacker:
        [answer] = attacker.send(request, 9).responses[0].partition_responses
    assert answer.error_code in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
    assert read_values(broker.address, topic, isolation="read_uncommitted") == [[]]


def test_announced_but_unsent_frames_allocate_no_memory(broker: Attacked, unaffected: Worker) -> None:
    with ExitStack() as held:
        for _ in range(_HALF_FRAMES):
            held.enter_context(connected(broker)).sendall((100 * MIB).to_bytes(4, "big") + b"\0\0\0")
        unaffected.wait_for_progress()


def test_million_empty_arrays_do_not_delay_other_clients(broker: Attacked, unaffected: Worker) -> None:
    with connected(broker) as attacker:
        attacker.sendall(A_MILLION_ARRAYS)
        attacker.shutdown(socket.SHUT_WR)
        unaffected.wait_for_progress()
        read_to_the_end(attacker)


def test_mutated_requests_are_answered_or_the_connection_closed(broker: Attacked, unaffected: Worker) -> None:
    @examples(_SPOILED_FRAMES)
    @given(hostile(seeds.frames()))
    def attack(data: bytes) -> None:
        with connected(broker) as attacker:
            attacker.sendall(data)
            attacker.shutdown(socket.SHUT_WR)
            read_to_the_end(attacker)

    attack()
