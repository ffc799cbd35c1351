"""One topic, read as read_committed and as read_uncommitted: `python -m examples.isolation_levels`.

A read_committed consumer does not see the records after an open transaction, nor those of an aborted one.
"""

from confluent_kafka import Consumer, Producer

from broker_core import EmbeddedBroker


def read(kafka: EmbeddedBroker, isolation_level: str) -> list[str]:
    """Read the topic to its end, as far as the isolation level allows."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": isolation_level,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["orders"])
    values = []
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def main() -> None:
    """Write in three transactions, of which one stays open, and read."""
    with EmbeddedBroker(topics={"orders": 1}) as kafka:
        producers = []
        for name in ("kept", "dropped", "undecided"):
            producer = Producer(
                {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0}
            )
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("orders", name)
            producer.flush(30)
            producers.append(producer)
        producers[0].commit_transaction(30)
        producers[1].abort_transaction(30)
        print(kafka.partition("orders", 0).dump())
        committed, uncommitted = read(kafka, "read_committed"), read(kafka, "read_uncommitted")
        producers[2].abort_transaction(30)
    assert committed == ["kept"]
    assert uncommitted == ["kept", "dropped", "undecided"]
    print(f"PROVEN: read_committed sees {committed}, read_uncommitted sees {uncommitted}.")


if __name__ == "__main__":
    main()
