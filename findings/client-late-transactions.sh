#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node, which looks for late transactions each half second and forgets transactional ids after eight)
# with the producers of its own Java client, confluent-kafka 2.16.1, kafka-python 3.0.12 and aiokafka 0.14.0. Needs a JDK.
#       "timed out": a transaction with one record passes its timeout of 2 s, and the node aborts it. Then the application
#       sends, commits, aborts (as it would after an error), and tries the next transaction.
#       "expired": a transaction is committed, the id expires, and the application goes on with the next transaction.
#
# Seen: timed out: Java goes on after an abort. To confluent-kafka and aiokafka the error is final. kafka-python refuses commit
#       and abort, as it is in no transaction any more, and goes on with the next.
#       expired: confluent-kafka goes on after an abort. To Java, kafka-python and aiokafka the error is final.
#
# Surprising, because Java recovers from the one and not from the other, and librdkafka the other way round, which also calls
# itself fenced although it has no rival. A producer that idles for seven days (the default) is the second case.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0 transaction.abort.timed.out.transaction.cleanup.interval.ms=500 \
    transactional.id.expiration.ms=8000 transaction.remove.expired.transaction.cleanup.interval.ms=500
cat >Late.java <<'JAVA'
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Late {
    interface Step {
        void run() throws Exception;
    }

    static void step(String name, Step step) {
        String seen = "done";
        try {
            step.run();
        } catch (Exception error) {
            Throwable first = error;
            while (first.getCause() != null) {
                first = first.getCause();
            }
            seen = first.getClass().getSimpleName();
        }
        System.out.println(name + " " + seen);
    }

    public static void main(String[] args) throws Exception {
        String topic = args[0];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("transactional.id", topic);
        settings.put("transaction.timeout.ms", "2000");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "first")).get();
            if (args[1].equals("expired")) {
                producer.commitTransaction();
            }
            Thread.sleep(args[1].equals("expired") ? 12_000 : 4_000);
            if (args[1].equals("expired")) {
                producer.beginTransaction();
            }
            step("send", () -> producer.send(new ProducerRecord<>(topic, "second")).get());
            step("commit", () -> producer.commitTransaction());
            step("abort", () -> producer.abortTransaction());
            Thread.sleep(2_000);
            step("next", () -> {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "third")).get();
                producer.commitTransaction();
            });
        }
    }
}
JAVA
cat >late.py <<'PYTHON'
import asyncio
import subprocess
import time

import aiokafka
import kafka
from confluent_kafka import KafkaException, Producer
from kafka_clients import BOOTSTRAP, create
from seen import see

TIMED_OUT, EXPIRED = "timed-out", "expired"


def java(topic, case):
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Late.java", topic, case]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return [line.split()[1] for line in lines if line.split()[0] in ("send", "commit", "abort", "next")]


def steps(case, producer, send):
    """Run the case with a producer whose calls wait for their answers."""
    seen = []

    def step(*calls):
        try:
            for call in calls:
                call()
            seen.append("done")
        except KafkaException as error:
            seen.append(error.args[0].name() + (" (fatal)" if error.args[0].fatal() else ""))
        except Exception as error:
            seen.append(type(error).__name__)

    producer.begin_transaction()
    send("first")
    if case == EXPIRED:
        producer.commit_transaction()
    time.sleep(12 if case == EXPIRED else 4)
    if case == EXPIRED:
        producer.begin_transaction()
    step(lambda: send("second"))
    step(producer.commit_transaction)
    step(producer.abort_transaction)
    time.sleep(2)
    step(producer.begin_transaction, lambda: send("third"), producer.commit_transaction)
    return seen


def confluent(topic, case):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic, "transaction.timeout.ms": 2000, "log_level": 0})
    producer.init_transactions(60)

    def send(value):
        producer.produce(topic, value)
        producer.flush(60)

    return steps(case, producer, send)


def kafka_python(topic, case):
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic, transaction_timeout_ms=2000)
    producer.init_transactions()
    seen = steps(case, producer, lambda value: producer.send(topic, value.encode()).get(60))
    producer.close(timeout=5)
    return seen


def aio(topic, case):
    runner = asyncio.Runner()
    run = runner.run

    class Waiting:
        def __getattr__(self, name):
            return lambda *args: run(getattr(producer, name)(*args))

    async def start():
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic, transaction_timeout_ms=2000)
        await producer.start()
        return producer

    producer = run(start())
    seen = steps(case, Waiting(), lambda value: run(producer.send_and_wait(topic, value.encode())))
    run(producer.stop())
    runner.close()
    return seen


STATED = {
    TIMED_OUT: {
        java: ["InvalidProducerEpochException", "InvalidProducerEpochException", "done", "done"],
        confluent: ["_FENCED (fatal)"] * 4,
        kafka_python: ["InvalidProducerEpochError", "KafkaError", "KafkaError", "done"],
        aio: ["ProducerFenced", "ProducerFenced", "AssertionError", "AssertionError"],
    },
    EXPIRED: {
        java: ["InvalidPidMappingException"] * 4,
        confluent: ["done", "INVALID_PRODUCER_ID_MAPPING", "done", "done"],
        kafka_python: ["KafkaError"] * 4,
        aio: ["KafkaError", "AssertionError", "AssertionError", "AssertionError"],
    },
}
print("send, commit, abort, next transaction")
for case, clients in STATED.items():
    for client, stated in clients.items():
        topic = f"{client.__name__}-{case}"
        create(topic)
        see(f"{case}, {client.__name__}", client(topic, case), stated)
PYTHON
quietly python late.py
