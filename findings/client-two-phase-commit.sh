#!/bin/bash
# Run: the Java client 4.4.0 with transaction.two.phase.commit.enable=true (KIP-939) and Apache Kafka 4.4.0 (one node with the
# setting of the same name). A producer writes in a transaction and waits. Needs a JDK.
#
# Seen: 1. Together with transaction.timeout.ms the setting is refused: "Transactions will not expire with two-phase commit
#          enabled".
#       2. Alone, the transaction has a timeout of 60 s, expires, and its record is aborted. The commit then fails.
#
# Surprising, because the client says that it does not expire, and neither it nor the node warns. Who commits after a prepared
# transaction of a database loses the record if that takes longer.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 transaction.two.phase.commit.enable=true
cat >Prepare.java <<'JAVA'
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.StringSerializer;

public class Prepare {
    static KafkaProducer<String, String> make(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("transactional.id", "id");
        settings.put("transaction.two.phase.commit.enable", true);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) throws Exception {
        try {
            make(Map.of("transaction.timeout.ms", 5000)).close();
        } catch (ConfigException error) {
            System.out.println("with a timeout: " + error.getMessage());
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", System.getenv("BOOTSTRAP")))) {
            var producer = make(Map.of());
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("topic", "prepared")).get();
            var begun = admin.describeTransactions(List.of("id")).description("id").get();
            System.out.println("begun: " + begun.state() + ", " + begun.transactionTimeoutMs() + " ms");
            String state = "Ongoing";
            for (int seconds = 0; seconds < 180 && !state.equals("CompleteAbort"); seconds++) {
                Thread.sleep(1000);
                state = admin.describeTransactions(List.of("id")).description("id").get().state().toString();
            }
            System.out.println("later: " + state);
            try {
                producer.commitTransaction();
                System.out.println("commit: done");
            } catch (Exception error) {
                System.err.println(error);
                System.out.println("commit: refused");
            }
        }
        System.exit(0);
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from confluent_kafka import Consumer, TopicPartition
from kafka_clients import BOOTSTRAP, create
from seen import see

create("topic")
said = subprocess.check_output(["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Prepare.java"], text=True)
answers = dict(line.split(": ", 1) for line in said.splitlines())
see("1. a producer with a timeout is refused", "will not expire" in answers["with a timeout"], True)
see("2. the transaction", answers["begun"], "Ongoing, 60000 ms")
see("   three minutes later at most", answers["later"], "CompleteAbort")
see("   its commit", answers["commit"], "refused")
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "none", "enable.partition.eof": True})
consumer.assign([TopicPartition("topic", 0, 0)])
see("   the topic has no committed record", consumer.poll(60).error() is not None, True)
consumer.close()
PYTHON
quietly python drive.py
