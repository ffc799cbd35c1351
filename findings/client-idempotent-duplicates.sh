#!/bin/bash
# Run: two nodes of Apache Kafka 4.4.0 and two idempotent producers, confluent-kafka 2.16.1 and Kafka's own Java client. Each writes
# to two topics with both nodes as replicas. The second node is paused, as by a long garbage collection, until the cluster goes on
# without it. A record for the topic that it leads passes the producer's timeout. Ten seconds later than that record, another
# one was written to the topic of the first node, which waits for its replica meanwhile. Needs a JDK.
#
# Seen: confluent-kafka: the first topic has its record twice, the second time under the producer's next epoch. The application was
#       told of one success.
#       Java: it is there once.
#
# Surprising, because the producer is idempotent, and nothing failed in the topic with the duplicate. librdkafka takes a new epoch
# for all partitions when one of them may have a gap, and sends again under it what it has no answer for: to the node these are
# new records. Java's unanswered batches in other partitions keep their epoch. The same happens when leaders move: a refused batch
# with another in flight behind it is such a gap. With a transactional id the commit fails instead, and nothing is there twice.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 min.insync.replicas=1 broker.session.timeout.ms=25000
second_node
cat >Write.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Write {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "linger.ms", "0",
            "request.timeout.ms", "1000", "delivery.timeout.ms", "20000", "metadata.max.age.ms", "2000");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String topic : new String[] {"java-second", "java-first"}) {
                producer.send(new ProducerRecord<>(topic, "before")).get();
            }
            System.out.println("ready");
            System.in.read();
            for (String topic : new String[] {"java-second", "java-first"}) {
                producer.send(new ProducerRecord<>(topic, "record"),
                    (metadata, error) -> System.out.println(topic + (error == null ? " written" : " timed out")));
                Thread.sleep(10_000);
            }
            producer.flush();
        }
    }
}
JAVA
cat >drive.py <<'PYTHON'
import os
import signal
import subprocess
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka_clients import ADMIN, BOOTSTRAP
from kafka_log import batches
from seen import see, wait_for

SECOND = int(os.environ["SECOND"])


def create(client):
    """Create a topic led by the first node, and one led by the second."""
    topics = [NewTopic(f"{client}-{name}", 1, replica_assignment=[nodes]) for name, nodes in (("first", [1, 2]), ("second", [2, 1]))]
    for answer in ADMIN.create_topics(topics).values():
        answer.result()
    wait_for(lambda: all(has_both(topic.topic) for topic in topics))


def has_both(topic):
    partitions = ADMIN.list_topics(topic).topics[topic].partitions
    return 0 in partitions and len(partitions[0].isrs) == 2


def pause():
    os.kill(SECOND, signal.SIGSTOP)


def go_on():
    os.kill(SECOND, signal.SIGCONT)
    wait_for(lambda: len(ADMIN.list_topics().brokers) == 2)


def confluent():
    told = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 0, "request.timeout.ms": 1000,
                         "message.timeout.ms": 20000, "log_level": 0})
    for topic in ("confluent-second", "confluent-first"):
        producer.produce(topic, "before")
    producer.flush()
    pause()
    for topic in ("confluent-second", "confluent-first"):
        producer.produce(topic, "record", on_delivery=lambda error, record: told.append(
            record.topic() + (" timed out" if error else " written")))
        until = time.monotonic() + 10
        while (left := until - time.monotonic()) > 0:
            producer.poll(left)
    producer.flush()
    go_on()
    return told


def java():
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Write.java"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.stdout.readline().strip() != "ready":
        assert process.poll() is None
    pause()
    told = [line for line in process.communicate("go\n")[0].splitlines() if line]
    go_on()
    return told


def values(topic):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "values", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (record := consumer.poll(60)) is not None and not record.error():
        found.append(record.value().decode())
    consumer.close()
    return found


for client, stated, epochs in (
    (confluent, ["before", "record", "record"], [0, 0, 1]),
    (java, ["before", "record"], [0, 0]),
):
    name = client.__name__
    create(name)
    see(f"{name}: what the application was told", client(), [f"{name}-second timed out", f"{name}-first written"])
    see("  values in the first topic", values(f"{name}-first"), stated)
    see("  their producer's epochs", [batch.epoch for batch in batches(f"{name}-first")], epochs)
PYTHON
quietly python drive.py
