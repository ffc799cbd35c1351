#!/bin/bash
# Run: the Java client 4.4.0 and Apache Kafka 4.4.0 (one node). The feature transaction.version goes from 1 to 2 and back to 1
# under producers that go on with their transactions. Version 2 gives each transaction an epoch of its own. Needs a JDK.
#
# Seen: a producer that is busy keeps the version that it began with: twenty transactions and ten seconds after the feature went
#       up it still has its first epoch, with metadata.max.age.ms=500 as well. A new producer uses version 2 at once, and keeps
#       it when the feature goes down. One that pauses until its connections are closed
#       (connections.max.idle.ms) takes up the new version in a transaction or two.
#
# Surprising, because the producer asks for the version at the beginning of each transaction, and KIP-890 lets "the next
# transaction" have it. But it asks its own copy of what the broker said when it connected.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >Levels.java <<'JAVA'
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Levels {
    static Admin admin = Admin.create(Map.of("bootstrap.servers", System.getenv("BOOTSTRAP")));

    static void level(int level, UpgradeType type) throws Exception {
        var update = new FeatureUpdate((short) level, type);
        admin.updateFeatures(Map.of("transaction.version", update), new UpdateFeaturesOptions()).all().get();
        short seen;
        do {
            Thread.sleep(100);
            seen = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version").maxVersionLevel();
        } while (seen != level);
    }

    static KafkaProducer<String, String> producer(String id, String setting, String value) {
        var settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("transactional.id", id);
        settings.put(setting, value);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** Makes transactions with pauses, and returns the epoch after each. */
    static List<Integer> epochs(KafkaProducer<String, String> producer, String id, int transactions, int pause) throws Exception {
        var epochs = new ArrayList<Integer>();
        for (int i = 0; i < transactions; i++) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("topic", id)).get();
            producer.commitTransaction();
            Thread.sleep(pause);
            epochs.add(admin.describeTransactions(List.of(id)).description(id).get().producerEpoch());
        }
        return epochs;
    }

    public static void main(String[] args) throws Exception {
        admin.createTopics(List.of(new NewTopic("topic", 1, (short) 1))).all().get();
        level(1, UpgradeType.SAFE_DOWNGRADE);
        var busy = producer("busy", "metadata.max.age.ms", "500");
        var idle = producer("idle", "connections.max.idle.ms", "2000");
        System.out.println("busy at 1: " + epochs(busy, "busy", 2, 500));
        System.out.println("idle at 1: " + epochs(idle, "idle", 2, 4000));
        level(2, UpgradeType.UPGRADE);
        System.out.println("busy at 2: " + epochs(busy, "busy", 20, 500));
        System.out.println("idle at 2: " + epochs(idle, "idle", 3, 4000));
        var fresh = producer("fresh", "metadata.max.age.ms", "500");
        System.out.println("fresh at 2: " + epochs(fresh, "fresh", 2, 500));
        level(1, UpgradeType.SAFE_DOWNGRADE);
        System.out.println("fresh at 1 again: " + epochs(fresh, "fresh", 3, 500));
        var late = producer("late", "metadata.max.age.ms", "500");
        System.out.println("late at 1 again: " + epochs(late, "late", 3, 500));
        System.exit(0);
    }
}
JAVA
cat >drive.py <<'PYTHON'
import json
import subprocess

from seen import see

java = ["java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Levels.java"]
lines = subprocess.run(java, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
epochs = dict(line.split(": ") for line in lines if ": [" in line)
for name, stated in (
    ("busy at 1", [0] * 2),
    ("idle at 1", [0] * 2),
    ("busy at 2", [0] * 20),
    ("fresh at 2", [1, 2]),
    ("fresh at 1 again", [3, 4, 5]),
    ("late at 1 again", [0] * 3),
):
    see(f"epochs, {name}", epochs[name], str(stated))
print("epochs, idle at 2:", epochs["idle at 2"])
see("  the last one is the first one", json.loads(epochs["idle at 2"])[-1] == 0, False)
PYTHON
quietly python drive.py
