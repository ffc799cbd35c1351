"""A test of your own code against a broker with injected faults: `python -m examples.fault_injection`.

`copy` is the code under test: it moves records from one topic to another exactly once. Each fault occurs in real
networks. The last two are a response that is lost after the commit took effect, and a coordinator that dies between the
markers of two partitions.
"""

from confluent_kafka import Consumer, Producer

from broker_core import Disconnect, EmbeddedBroker, Error

ORDERS = [b"order %d" % number for number in range(5)]


def copy(bootstrap_servers: str) -> None:
    """Copy from `in` to `out`, offsets and records in one transaction: the code under test."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "copier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "copier", "log_level": 0})
    producer.init_transactions(30)
    consumer.subscribe(["in"])
    try:
        messages = consumer.consume(len(ORDERS), timeout=30)
        producer.begin_transaction()
        for number, message in enumerate(messages):
            producer.produce("out", message.value(), partition=number % 2)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(30)
    finally:
        consumer.close()


def main() -> None:
    """Run the code under test once for each fault, and check the records in the topic."""
    for api, when, action in (
        ("InitProducerId", "before", Error("COORDINATOR_LOAD_IN_PROGRESS")),
        ("Produce", "after_apply", Disconnect()),
        ("EndTxn", "after_apply", Disconnect()),
        ("EndTxn", "mid", "crash"),
    ):
        with EmbeddedBroker(brokers=3, topics={"in": 1, "out": 2}) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            for order in ORDERS:
                producer.produce("in", order)
            producer.flush(30)
            if action == "crash":
                action = lambda seen, kafka=kafka: kafka.broker(seen.broker).crash()  # noqa: E731
            fault = kafka.fault(api=api, when=when, action=action, nth=2 if when == "mid" else None, times=1)
            copy(kafka.bootstrap_servers)
            kafka.wait_for(lambda kafka=kafka: kafka.transaction("copier").state == "CompleteCommit")
            dump = kafka.partition("out", 0).dump() + kafka.partition("out", 1).dump()
            assert fault.hits == 1
            assert all(dump.count(order.decode()) == 1 for order in ORDERS), dump
            print(f"{when} {api}: {fault.hits} fault, {len(ORDERS)} orders, each in the log once")
    print("PROVEN: four faults, and no order was lost or copied twice.")


if __name__ == "__main__":
    main()
