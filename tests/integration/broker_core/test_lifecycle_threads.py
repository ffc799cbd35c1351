"""Starts, stops and restores of one broker that several threads call: each waits for the others."""


def test_function_of_a_fault_does_not_wait(kafka, kafka_producer):
    """A thread that starts or stops brokers waits for the broker's own thread, which therefore never waits for it."""
    producer = kafka_producer()
    with kafka._thread.changing(), kafka.fault(api="Metadata", action=lambda _: kafka.crash(), times=1):
        producer.poll(0)
        kafka.wait_for(lambda: not kafka.broker(1).is_running)
