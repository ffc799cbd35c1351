#!/bin/bash
# Run: confluent-kafka 2.16.1 with its clients for asyncio, AIOProducer and AIOConsumer, both with their defaults, and aiokafka 0.14.0
# beside them, on kfake of 18 September 2026, a broker in Go. Needs Go.
#
# Seen: 1. A record every 0.3 s: after 15 s none of them is in the topic. buffer_timeout (1 s) counts from the last call of produce, so
#          that a steady trickle is sent when 1,000 records have come together. Half a second later aiokafka has sent each of its own.
#       2. asyncio.wait_for() ends a poll() without a timeout, as for an application that has other things to do. The next record goes to
#          this poll, nowhere else: the application gets all others, and the group commits past it. aiokafka's getone() loses none.
#       3. The broker pauses while a transaction writes 150,000 records: the commit succeeds without those that found the client's queue
#          full (100,000). Each produce() has succeeded. The plain Producer raises BufferError there.
#       4. on_delivery and a partition as fourth argument, both as in Producer.produce(), are taken and ignored.
#       5. close() in a transaction leaves it open. The plain Producer's close() aborts it.
#
# Surprising, because the classes wrap Producer and Consumer method by method, and because nothing but the future that the awaited
# produce() returns says so: it has to be awaited as well.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 aiokafka==0.14.0
kfake
cat >clients.py <<'PYTHON'
import asyncio
import os
import signal
import sys
import time

import aiokafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer
from confluent_kafka.admin import NewPartitions
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable
from seen import see, wait_for

BROKER = int(sys.argv[1])
SERVERS = {"bootstrap.servers": BOOTSTRAP}


async def trickle(produce):
    """Write a record every 0.3 s, for 15 s."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        await produce()
        await asyncio.sleep(0.3)


async def steady():
    producer = AIOProducer(SERVERS)
    sent = []

    async def produce():
        sent.append(await producer.produce("steady", b"record"))

    await trickle(produce)
    see("1. AIOProducer: delivered after 15 s", [sum(each.done() for each in sent), high("steady")], [0, 0])
    await producer.close()
    see("   at its close", high("steady") == len(sent), True)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        sent.clear()

        async def send():
            sent.append(await producer.send("steady-aiokafka", b"record"))

        await trickle(send)
        await asyncio.sleep(0.5)
        see("   aiokafka: all are delivered", all(each.done() for each in sent), True)


async def cancelled():
    """Wait for a record in vain, and take three that come later."""
    settings = {**SERVERS, "group.id": "cancelled", "auto.offset.reset": "earliest"}
    for topic in "cancelled", "cancelled-aiokafka":
        write(topic, "first")
    consumer = AIOConsumer(settings)
    await consumer.subscribe(["cancelled"])
    assert (await consumer.poll(60)).value() == b"first"
    with_timeout = asyncio.wait_for(consumer.poll(), 1)
    see("2. AIOConsumer: the poll", (await asyncio.gather(with_timeout, return_exceptions=True))[0].__class__, TimeoutError)
    write("cancelled", "a", "b", "c")
    seen = []
    while message := await consumer.poll(5):
        seen.append(message.value().decode())
    see("   of the records a, b and c", seen, ["b", "c"])
    await consumer.close()
    plain = Consumer(settings)
    see("   committed, of 4", plain.committed([TopicPartition("cancelled", 0)], 60)[0].offset, 4)
    plain.close()
    async with aiokafka.AIOKafkaConsumer(
        "cancelled-aiokafka", bootstrap_servers=BOOTSTRAP, group_id="cancelled-aiokafka", auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value == b"first"
        with_timeout = asyncio.wait_for(consumer.getone(), 1)
        assert isinstance((await asyncio.gather(with_timeout, return_exceptions=True))[0], TimeoutError)
        write("cancelled-aiokafka", "a", "b", "c")
        seen = [(await consumer.getone()).value.decode() for _ in range(3)]
        see("   of aiokafka", seen, ["a", "b", "c"])


def write(topic, *values):
    producer = Producer(SERVERS)
    for value in values:
        producer.produce(topic, value)
    producer.flush(60)


async def full():
    """Write more than the client's queue holds, while the broker is paused."""
    producer = AIOProducer({**SERVERS, "transactional.id": "full"})
    await producer.init_transactions(60)
    await producer.begin_transaction()
    await producer.produce("full", b"record")
    await producer.flush()
    os.kill(BROKER, signal.SIGSTOP)
    try:
        sent = [await producer.produce("full", b"record") for _ in range(150_000)]
    finally:
        os.kill(BROKER, signal.SIGCONT)
    await producer.commit_transaction(60)
    count = records("full")
    see("3. committed, with all of 150,001 records", count == 150_001, False)
    errors = [each.exception() for each in sent if each.exception()]
    see("   futures with an error", {each.args[0].name() for each in errors}, {"_QUEUE_FULL"})
    see("   as many as records are missing", len(errors) + count, 150_001)
    print(f"   records that are there: {count}")
    await producer.close()
    plain = Producer({**SERVERS, "transactional.id": "plain"})
    plain.init_transactions(60)
    plain.begin_transaction()
    os.kill(BROKER, signal.SIGSTOP)
    try:
        for _ in range(150_000):
            plain.produce("full", b"record")
        said = "nothing"
    except BufferError as error:
        said = str(error)
    finally:
        os.kill(BROKER, signal.SIGCONT)
    see("   the plain Producer raises", said, "Local: Queue full")
    plain.abort_transaction(60)


def records(topic):
    reader = Consumer({**SERVERS, "group.id": "reader", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while (message := reader.poll(60)) is not None and message.error() is None:
        count += 1
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    reader.close()
    return count


async def ignored():
    called = []
    arguments = ("ignored", b"value", b"key", 3)
    plain = Producer(SERVERS)
    plain.produce(*arguments, on_delivery=lambda error, message: called.append(message.partition()))
    plain.flush(60)
    see("4. the plain Producer: the partition, in a call of on_delivery", called, [3])
    called.clear()
    producer = AIOProducer(SERVERS)
    future = await producer.produce(*arguments, on_delivery=lambda error, message: called.append(message.partition()))
    await producer.flush()
    see("   AIOProducer: calls of on_delivery", called, [])
    see("   the partition", (await future).partition(), 1)
    await producer.close()


async def closed():
    producer = AIOProducer({**SERVERS, "transactional.id": "closed"})
    await producer.init_transactions(60)
    await producer.begin_transaction()
    await producer.produce("closed", b"record")
    await producer.flush()
    await producer.close()
    plain = Producer({**SERVERS, "transactional.id": "closed-plain"})
    plain.init_transactions(60)
    plain.begin_transaction()
    plain.produce("closed-plain", b"record")
    plain.flush(60)
    plain.close()
    see("5. the plain Producer: ended", wait_for(lambda: stable("closed-plain") == 2), True)
    see("   AIOProducer: ended", stable("closed") == high("closed"), False)


for topic in "steady", "steady-aiokafka", "cancelled", "cancelled-aiokafka", "full", "ignored", "closed", "closed-plain":
    create(topic)
ADMIN.create_partitions([NewPartitions("ignored", 4)])["ignored"].result()
wait_for(lambda: len(ADMIN.list_topics(timeout=60).topics["ignored"].partitions) == 4)
for part in steady, cancelled, full, ignored, closed:
    asyncio.run(part())
PYTHON
quietly python clients.py "${nodes[0]}"
