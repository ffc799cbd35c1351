"""A hanging transaction, found and ended: `python -m examples.hanging_transaction`.

The network delays a write until its transaction is over. A broker that does not verify transactions treats it as the
start of a new one, which no coordinator knows: read_committed consumers wait forever (KIP-664, KIP-890).
"""

import subprocess
import sys
import threading
import time

from confluent_kafka import KafkaException, Producer

from broker_core import EmbeddedBroker, Hold

FOUND = 5
HOUR_MS = 3_600_000


def eos_kafka(*arguments: str) -> int:
    """Run the command `eos-kafka` and return its exit code."""
    return subprocess.call([sys.executable, "-m", "spark_eos.admin", *arguments])


def main() -> None:
    """Make a transaction hang, find it, abort it."""
    settings = {"transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(topics={"orders": 1}, transaction_version=1, config=settings) as kafka:
        arrives = threading.Event()
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": "unlucky",
                "log_level": 0,
                "message.timeout.ms": 500,
                "socket.timeout.ms": 300,
                "transaction.timeout.ms": 10_000,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        held = kafka.fault(api="Produce", action=Hold(arrives), times=1)
        producer.produce("orders", b"late", timestamp=int(time.time() * 1000) - HOUR_MS)
        kafka.wait_for(lambda: held.hits)
        try:
            producer.commit_transaction(30)
        except KafkaException:
            producer.abort_transaction(30)
        kafka.wait_for(lambda: kafka.partition("orders", 0).high_watermark)
        arrives.set()
        kafka.wait_for(lambda: kafka.partition("orders", 0).open_transactions)
        print(kafka.partition("orders", 0).dump())
        start = kafka.partition("orders", 0).open_transactions[0].first_offset
        servers = ("--bootstrap-server", kafka.bootstrap_servers)
        found = eos_kafka("transactions", *servers, "find-hanging", "--topic", "orders")
        stuck_at = kafka.partition("orders", 0).last_stable_offset
        orders = ("--topic", "orders", "--partition", "0", "--start-offset", str(start))
        ended = eos_kafka("transactions", *servers, "abort", *orders, "--yes")
        kafka.assert_quiescent(clients_may_wait=True)
        seen = kafka.partition("orders", 0)
    assert (found, ended) == (FOUND, 0)
    print(
        f"PROVEN: the last stable offset hung at {stuck_at}; after the abort it is "
        f"{seen.last_stable_offset}, the end of the log."
    )


if __name__ == "__main__":
    main()
