#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node, transaction.version 2) and its Java client. An administrator ends a transaction whose
# producer is alive with `abortTransaction`, as `kafka-transactions.sh abort` does. Then the producer writes on and commits.
# Needs a JDK.
#
# Seen: 1. The producer gets no error. Its commit succeeds with half of the transaction: what it wrote before is aborted, what
#          it writes afterwards is committed. Its next transaction succeeds as well.
#       2. `forceTerminateTransaction` of the same client does not do that: the producer is fenced, and nothing is committed.
#
# Surprising, because transactions of version 2 (KIP-890) are there so that no late write joins a transaction that has ended,
# and each end raises the epoch. But this marker has the epoch of the transaction itself, and the coordinator does not know
# of it.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >Live.java <<'JAVA'
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

public class Live {
    static KafkaProducer<String, String> producer;

    static void show(String name, Runnable step) {
        try {
            step.run();
            System.out.println(name + ": done");
        } catch (Exception error) {
            System.err.println(error);
            System.out.println(name + ": refused");
        }
    }

    public static void main(String[] args) throws Exception {
        String topic = args[0];
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "transactional.id", topic);
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "before")).get();
        try (var admin = Admin.create(Map.of("bootstrap.servers", System.getenv("BOOTSTRAP")))) {
            if (topic.equals("terminate")) {
                admin.forceTerminateTransaction(topic).result().get();
            } else {
                var partition = new TopicPartition(topic, 0);
                var found = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
                var open = found.activeProducers().get(0);
                short epoch = (short) open.producerEpoch();
                int coordinator = open.coordinatorEpoch().orElse(0);
                admin.abortTransaction(new AbortTransactionSpec(partition, open.producerId(), epoch, coordinator)).all().get();
            }
        }
        show("commit", () -> {
            producer.send(new ProducerRecord<>(topic, "after"));
            producer.commitTransaction();
        });
        show("next", () -> {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "next"));
            producer.commitTransaction();
        });
        System.exit(0);
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from confluent_kafka import Consumer, TopicPartition
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see, wait_for



def committed(topic):
    """Return what a read_committed reader gets."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while not (message := consumer.poll(60)).error():
        values.append(message.value().decode())
    consumer.close()
    return values


for number, (how, answers, values) in enumerate(
    (
        ("abort", ["commit: done", "next: done"], ["after", "next"]),
        ("terminate", ["commit: refused", "next: refused"], []),
    ),
    1,
):
    create(how)
    said = subprocess.check_output(["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Live.java", how], text=True).splitlines()
    see(f"{number}. {how}: the producer's own answers", said, answers)
    wait_for(lambda: stable(how) == high(how))
    see("   read at read_committed", committed(how), values)
PYTHON
quietly python drive.py
