"""The console on a large cluster: the time to its first picture, its requests and what it costs.

`python -m tests.benchmarks.bench_console --partitions 10000 --ids 100000` runs three brokers of `broker_core`, the
command `eos-kafka console` and headless Chromium, each in processes of their own.
"""

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from kafka.protocol.producer import InitProducerIdRequest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client import transactions
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.options.client import ClientOptions
from tests.support.chromium import chromium, has_chromium
from tests.support.spark_eos.client_world import encoded
from tests.support.waiting import wait_until

_PER_TOPIC = 100
_AT_ONCE = 2_000
_TICKS = 100


def _serve(partitions: int, link: Connection) -> None:
    topics = {f"topic-{number}": _PER_TOPIC for number in range(partitions // _PER_TOPIC)}
    with EmbeddedBroker(brokers=3, topics=topics) as kafka:
        link.send(kafka.bootstrap_servers)
        link.recv()


@contextmanager
def brokers(partitions: int) -> Iterator[str]:
    """Run the brokers in another process and return their addresses."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(partitions, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


def make_ids(client: KafkaClient, count: int) -> None:
    """Create transactional ids without a transaction."""
    for start in range(0, count, _AT_ONCE):
        names = [f"service-{number}" for number in range(start, min(count, start + _AT_ONCE))]
        nodes = client.find_coordinators(CoordinatorType.TRANSACTION, names)
        requests = [
            (
                nodes[name],
                InitProducerIdRequest(
                    transactional_id=name, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1
                ),
            )
            for name in names
        ]
        client.send_all(requests)


def open_in(client: KafkaClient, partitions: int, producers: int) -> None:
    """Leave transactions open, each in the same number of partitions."""
    share = partitions // producers
    for number in range(producers):
        identity = transactions.init_producer_id(client, f"stuck-{number}", transaction_timeout_ms=600_000)
        producer = TransactionalProducer(client)
        producer.begin(identity)
        for place in range(number * share, (number + 1) * share):
            producer.send(TopicPartition(f"topic-{place // _PER_TOPIC}", place % _PER_TOPIC), encoded(["open"]))
        producer.flush()


def measure(address: str, waiting: int, seconds: float, budget: float) -> None:
    """Start the console, look at it, and print what it cost."""
    began = time.monotonic()
    command = [sys.executable, "-m", "spark_eos.admin", "console", "--bootstrap-server", address]
    process = subprocess.Popen(
        [*command, "--requests-per-second", str(budget)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        print(f"address printed after {time.monotonic() - began:.2f} s")
        look = lambda: json.load(urllib.request.urlopen(f"{url}api/overview", timeout=30))  # noqa: E731
        wait_until(lambda: look()["lagging"]["count"] == waiting, "the first scan has ended")
        first = look()
        print(
            f"first data after {time.monotonic() - began:.2f} s: {first['lagging']['count']} partitions wait; "
            f"{first['poll']['requests']} requests, scan of all partitions {first['poll']['scan_seconds']} s"
        )
        if has_chromium():
            with chromium() as browser:
                opened = time.monotonic()
                browser.get(url)
                wait_until(
                    lambda: browser.execute_script("return document.querySelectorAll('.card').length") == 6, "cards"
                )
                print(f"picture in Chromium {time.monotonic() - opened:.2f} s after its address was opened")
        cpu, requests, at = _cpu_seconds(process.pid), look()["poll"]["requests"], time.monotonic()
        while time.monotonic() - at < seconds:
            answer = look()
            time.sleep(2)
        took = time.monotonic() - at
        spent = 100 * (_cpu_seconds(process.pid) - cpu) / took
        rate = (look()["poll"]["requests"] - requests) / took
        print(
            f"over {took:.0f} s with the overview open: {rate:.1f} requests a second of {budget:g}, {spent:.0f} % of a "
            f"processor, {_megabytes(process.pid):.0f} MB; a cycle takes {answer['poll']['cycle_seconds']} s, a scan "
            f"{answer['poll']['scan_seconds']} s, the data have {len(json.dumps(answer)) / 1000:.0f} kB; ids "
            f"{answer['cluster']['states']}"
        )
    finally:
        process.terminate()
        process.wait(timeout=30)


def _cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _megabytes(process_id: int) -> float:
    pages = int(Path(f"/proc/{process_id}/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--ids", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--budget", type=float, default=20.0)
    chosen = parser.parse_args()
    with brokers(chosen.partitions) as address:
        with KafkaClient(ClientOptions(tuple(address.split(",")))) as client:
            make_ids(client, chosen.ids)
            open_in(client, chosen.waiting, producers=10)
        print(f"{chosen.partitions} partitions on 3 brokers, {chosen.ids} transactional ids, {chosen.waiting} waiting")
        measure(address, chosen.waiting, chosen.seconds, chosen.budget)


if __name__ == "__main__":
    main()
