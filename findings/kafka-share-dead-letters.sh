#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) with share.version 2 and its own Java client. Share groups with a dead letter topic (KIP-1191)
# and errors.deadletterqueue.copy.record.enable. Needs a JDK.
#
# Seen: 1. A member takes the records of two committed transactions, with two aborted ones between them, and hangs; a second
#          member, too, which is the limit of deliveries (2 here). At read_committed the dead letter topic has the four records,
#          and four more letters: the markers of all four transactions, whose 4 and 6 bytes are their keys and values.
#       2. A record of an open transaction is rejected at read_uncommitted. Its copy is readable at read_committed at once, and
#          stays when the transaction is aborted.
#       3. The dead letter topic is missing, or has not errors.deadletterqueue.group.enable, or is compacted while the record has
#          no key: the group's settings are accepted, the rejection succeeds, the lag is 0, and the record is nowhere. A record
#          that is too large for the dead letter topic leaves a letter without key and value.
#
# Surprising, because no reader ever gets a marker, and because a dead letter topic is set so that nothing is lost.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 share.coordinator.state.topic.replication.factor=1 share.coordinator.state.topic.min.isr=1 \
    share.coordinator.state.topic.num.partitions=1 group.share.delivery.count.limit=2 \
    group.share.min.record.lock.duration.ms=1000
cat >Dead.java <<'JAVA'
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Dead {
    static final String SERVERS = System.getenv("BOOTSTRAP");
    static final Admin ADMIN = Admin.create(Map.of("bootstrap.servers", SERVERS));
    static final Map<String, String> ENABLED = Map.of("errors.deadletterqueue.group.enable", "true");

    static void set(String group, String name, String value) throws Exception {
        var change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        ADMIN.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(change))).all().get();
    }

    static void topic(String name, Map<String, String> settings) throws Exception {
        ADMIN.createTopics(List.of(new NewTopic(name, 1, (short) 1).configs(settings))).all().get();
    }

    // Makes the topic, and a share group of its name whose dead letters go to the topic dlq.NAME.
    static void group(String name, String isolation) throws Exception {
        topic(name, Map.of());
        set(name, "share.isolation.level", isolation);
        set(name, "share.auto.offset.reset", "earliest");
        set(name, "share.record.lock.duration.ms", "3000");
        set(name, "errors.deadletterqueue.copy.record.enable", "true");
        set(name, "errors.deadletterqueue.topic.name", "dlq." + name);
    }

    static KafkaShareConsumer<String, String> member(String group) {
        Map<String, Object> settings =
            Map.of("bootstrap.servers", SERVERS, "group.id", group, "share.acknowledgement.mode", "explicit");
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(group));
        return consumer;
    }

    // Waits for records and returns their values; rejects them if asked to, else holds them.
    static List<String> take(KafkaShareConsumer<String, String> consumer, boolean reject) {
        var taken = new ArrayList<String>();
        for (int turn = 0; turn < 100 && taken.isEmpty(); turn++) {
            for (var record : consumer.poll(Duration.ofMillis(300))) {
                taken.add(record.value());
                if (reject) {
                    consumer.acknowledge(record, AcknowledgeType.REJECT);
                }
            }
        }
        if (reject) {
            var answers = consumer.commitSync(Duration.ofSeconds(10)).values();
            answers.forEach(error -> error.ifPresent(thrown -> taken.add(thrown.toString())));
        }
        return taken;
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : bytes.length > 0 && bytes[0] == 0 ? HexFormat.of().formatHex(bytes) : new String(bytes);
    }

    // Returns offset, key and value of the letters, after so many have come, or after ten seconds.
    static List<String> letters(String group, int many) {
        Map<String, Object> settings = Map.of("bootstrap.servers", SERVERS, "isolation.level", "read_committed");
        var letters = new ArrayList<String>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            var partition = new TopicPartition("dlq." + group, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            for (int turn = 0; turn < 33 && letters.size() < many; turn++) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    var offset = new String(record.headers().lastHeader("__dlq.errors.offset").value());
                    letters.add(offset + " " + text(record.key()) + " " + text(record.value()));
                }
            }
        }
        return letters;
    }

    static void say(String name, Object seen) {
        System.out.println(name + ": " + seen);
    }

    public static void main(String[] args) throws Exception {
        var two = Map.of("share.version", new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE));
        ADMIN.updateFeatures(two, new UpdateFeaturesOptions()).all().get();
        var text = new StringSerializer();
        var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", SERVERS, "transactional.id", "id"), text, text);
        producer.initTransactions();

        group("held", "read_committed");
        topic("dlq.held", ENABLED);
        for (String outcome : List.of("commit", "abort", "abort", "commit")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("held", "k", outcome + " 1"));
            producer.send(new ProducerRecord<>("held", "k", outcome + " 2"));
            producer.flush();
            if (outcome.equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        say("first member", take(member("held"), false));
        say("second member", take(member("held"), false));
        say("letters", letters("held", 8));

        group("open", "read_uncommitted");
        topic("dlq.open", ENABLED);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("open", "k", "open")).get();
        say("rejected while open", take(member("open"), true));
        say("letters while open", letters("open", 1));
        producer.abortTransaction();
        say("letters after the abort", letters("open", 1));

        var plain = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", SERVERS), text, text);
        for (String why : List.of("missing", "off", "compacted", "large")) {
            group(why, "read_committed");
            switch (why) {
                case "off" -> topic("dlq.off", Map.of());
                case "compacted" -> topic("dlq.compacted", Map.of("errors.deadletterqueue.group.enable", "true", "cleanup.policy", "compact"));
                case "large" -> topic("dlq.large", Map.of("errors.deadletterqueue.group.enable", "true", "max.message.bytes", "2000"));
                default -> { }
            }
            String value = why.equals("large") ? "x".repeat(3000) : "value";
            plain.send(new ProducerRecord<>(why, why.equals("compacted") ? null : "k", value)).get();
            var member = member(why);
            say(why + ", rejected", take(member, true).size());
            if (why.equals("missing")) {
                Thread.sleep(5000);
                topic("dlq.missing", ENABLED);
            }
            say(why + ", letters", letters(why, 1));
            var offsets = ADMIN.listShareGroupOffsets(Map.of(why, new ListShareGroupOffsetsSpec())).all().get();
            say(why + ", lag", offsets.get(why).get(new TopicPartition(why, 0)).lag().get());
        }
        System.exit(0);
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from seen import see

command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Dead.java"]
lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.splitlines()
seen = dict(line.split(": ", 1) for line in lines if ": " in line)
RECORDS = "[commit 1, commit 2, commit 1, commit 2]"
COMMIT = "00000001 000000000000"
ABORT = "00000000 000000000000"
LETTERS = ["0 k commit 1", "1 k commit 2", f"2 {COMMIT}", f"5 {ABORT}", f"8 {ABORT}", "9 k commit 1", "10 k commit 2", f"11 {COMMIT}"]
for what, stated in (
    ("first member", RECORDS),
    ("second member", RECORDS),
    ("letters", f"[{', '.join(LETTERS)}]"),
    ("rejected while open", "[open]"),
    ("letters while open", "[0 k open]"),
    ("letters after the abort", "[0 k open]"),
    ("missing, rejected", "1"), ("missing, letters", "[]"), ("missing, lag", "0"),
    ("off, rejected", "1"), ("off, letters", "[]"), ("off, lag", "0"),
    ("compacted, rejected", "1"), ("compacted, letters", "[]"), ("compacted, lag", "0"),
    ("large, rejected", "1"), ("large, letters", "[0 null null]"), ("large, lag", "0"),
):
    see(what, seen[what], stated)
PYTHON
quietly python drive.py
