#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and its own Java client: a share group and a consumer group, both at read_committed and both
# starting at the latest offset while a transaction with one record is open. Then it is committed, and another one follows.
# Needs a JDK.
#
# Seen: 1. The consumer group starts at the last stable offset and reads the record of the open transaction once it is committed.
#          The share group starts behind it and never delivers it: only the next transaction's record comes.
#       2. A share group at read_uncommitted that has released a record of an open transaction gets it again after the abort.
#
# Surprising, because the group's isolation level decides what is delivered, but not where it starts: a record that was committed
# after the group had started is not delivered to it.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 share.coordinator.state.topic.replication.factor=1 share.coordinator.state.topic.min.isr=1 \
    share.coordinator.state.topic.num.partitions=1
cat >Share.java <<'JAVA'
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Share {
    static final String SERVERS = System.getenv("BOOTSTRAP");
    static final Admin ADMIN = Admin.create(Map.of("bootstrap.servers", SERVERS));

    static void set(String group, String name, String value) throws Exception {
        var change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        ADMIN.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(change))).all().get();
    }

    static KafkaShareConsumer<String, String> share(String group, String topic) {
        Map<String, Object> settings =
            Map.of("bootstrap.servers", SERVERS, "group.id", group, "share.acknowledgement.mode", "explicit");
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    // Acknowledges what comes, until that are so many records, or for ten seconds.
    static List<String> take(KafkaShareConsumer<String, String> consumer, int most, AcknowledgeType type) {
        var taken = new ArrayList<String>();
        long end = System.nanoTime() + 10_000_000_000L;
        while (taken.size() < most && System.nanoTime() < end) {
            for (var record : consumer.poll(Duration.ofMillis(300))) {
                taken.add(record.value());
                consumer.acknowledge(record, type);
            }
            consumer.commitSync(Duration.ofSeconds(10));
        }
        return taken;
    }

    static void say(String name, Object seen) {
        System.out.println(name + ": " + seen);
    }

    public static void main(String[] args) throws Exception {
        ADMIN.createTopics(List.of(new NewTopic("latest", 1, (short) 1), new NewTopic("released", 1, (short) 1))).all().get();
        Map<String, Object> settings = Map.of("bootstrap.servers", SERVERS, "transactional.id", "id");
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();

        producer.beginTransaction();
        producer.send(new ProducerRecord<>("latest", "open")).get();
        set("share", "share.isolation.level", "read_committed");
        set("share", "share.auto.offset.reset", "latest");
        var share = share("share", "latest");
        say("share group while the transaction is open", take(share, 9, AcknowledgeType.ACCEPT));
        Map<String, Object> reading = Map.of("bootstrap.servers", SERVERS, "group.id", "regular",
            "isolation.level", "read_committed", "auto.offset.reset", "latest");
        var regular = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        regular.subscribe(List.of("latest"));
        while (regular.assignment().isEmpty()) {
            regular.poll(Duration.ofMillis(300));
        }
        say("consumer group's start", regular.position(new TopicPartition("latest", 0)));
        producer.commitTransaction();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("latest", "next")).get();
        producer.commitTransaction();
        say("share group", take(share, 9, AcknowledgeType.ACCEPT));
        var read = new ArrayList<String>();
        long end = System.nanoTime() + 30_000_000_000L;
        while (read.size() < 2 && System.nanoTime() < end) {
            regular.poll(Duration.ofMillis(300)).forEach(record -> read.add(record.value()));
        }
        say("consumer group", read);
        share.close();
        regular.close();

        set("releasing", "share.auto.offset.reset", "earliest");
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("released", "record")).get();
        share = share("releasing", "released");
        while (take(share, 1, AcknowledgeType.RELEASE).isEmpty()) { }
        producer.abortTransaction();
        say("released and aborted", take(share, 9, AcknowledgeType.ACCEPT));
        share.close();
        producer.close();
        ADMIN.close();
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from seen import see

command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Share.java"]
lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.splitlines()
seen = dict(line.split(": ", 1) for line in lines if ": " in line)
for what, stated in (
    ("share group while the transaction is open", "[]"),
    ("consumer group's start", "0"),
    ("share group", "[next]"),
    ("consumer group", "[open, next]"),
    ("released and aborted", "[record]"),
):
    see(what, seen[what], stated)
PYTHON
quietly python drive.py
