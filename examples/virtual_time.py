"""A transaction timeout of one hour, tested in a moment: `python -m examples.virtual_time`.

A producer begins a transaction and stops responding. Its timeout is an hour; the test does not wait for it.
"""

import time

from confluent_kafka import KafkaException, Producer

from broker_core import EmbeddedBroker

HOUR_S = 3600


def main() -> None:
    """Leave a transaction open, move the clock, and see the coordinator abort it."""
    started = time.monotonic()
    settings = {"transaction.max.timeout.ms": str(HOUR_S * 1000)}
    with EmbeddedBroker(topics={"orders": 1}, config=settings, clock="virtual", seed=7) as kafka:
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": "sleeper",
                "transaction.timeout.ms": HOUR_S * 1000,
                "message.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"an order")
        producer.flush(30)
        kafka.clock.advance(HOUR_S - 1)
        before = kafka.transaction("sleeper").state
        kafka.clock.advance(HOUR_S)
        after = kafka.transaction("sleeper").state
        kafka.assert_quiescent()
        print(kafka.partition("orders", 0).dump())
        try:
            producer.commit_transaction(30)
            outcome = "committed"
        except KafkaException as error:
            outcome = f"refused with {error.args[0].name()}"
    assert (before, after) == ("Ongoing", "CompleteAbort")
    assert outcome.startswith("refused")
    print(
        f"PROVEN: two hours passed in {time.monotonic() - started:.1f} s; the transaction was {before} a second "
        f"before its timeout and {after} after it, and the producer that woke up was {outcome}."
    )


if __name__ == "__main__":
    main()
