#!/bin/bash
# Run: Apache Kafka 4.4.0 (two nodes, whose add.partitions.to.txn.retry.backoff.ms is 2,000, so that its effect is seen on a busy
# machine; the default is 20) and its Java client 4.4.0. 20 transactions write one record to a partition of one node, 20 one
# record each to partitions of two nodes. How long does `flush` take? Needs a JDK.
#
# Seen: 1. Transactions of version 2: with one node no transaction takes 2 s; with two nodes some do (19 of 20 on an idle
#          machine, 7 of 20 on a busy one).
#       2. transaction.version=1, the same client: none, with one node or two.
#
# Surprising, because version 2 came with one request less for each transaction: partitions are added by the first write to
# them, not by a request of the producer. But the coordinator adds one partition at a time. Writes that reach two nodes at
# the same moment meet there; the node that comes second tries again only after the backoff. A producer of version 1 adds all
# partitions with one request.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 add.partitions.to.txn.retry.backoff.ms=2000 add.partitions.to.txn.retry.backoff.max.ms=2000 \
    transaction.state.log.replication.factor=2 transaction.state.log.min.isr=2
second_node
cat >Leaders.java <<'JAVA'
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Leaders {
    static final int TRANSACTIONS = 20;

    /** Count the transactions whose first writes, to this many partitions, took as long as the backoff. */
    static int slow(Admin admin, Properties settings, String id, int partitions) throws Exception {
        settings.put("transactional.id", id);
        int slow = 0;
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; number < TRANSACTIONS; number++) {
                producer.beginTransaction();
                long began = System.nanoTime();
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>("topic", partition, null, "value"));
                }
                producer.flush();
                slow += System.nanoTime() - began >= 2_000_000_000L ? 1 : 0;
                producer.commitTransaction();
                // The next one must not meet the completion of this one.
                while (admin.describeTransactions(List.of(id)).description(id).get().state() != TransactionState.COMPLETE_COMMIT) {
                    Thread.sleep(10);
                }
            }
        }
        return slow;
    }

    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        try (var admin = Admin.create(settings)) {
            while (admin.describeCluster().nodes().get().size() < 2) {
                Thread.sleep(100);
            }
            admin.createTopics(Set.of(new NewTopic("topic", Map.of(0, List.of(1), 1, List.of(2))))).all().get();
            for (int version = 2; version >= 1; version--) {
                if (version == 1) {
                    var update = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
                    admin.updateFeatures(Map.of("transaction.version", update), new UpdateFeaturesOptions()).all().get();
                }
                for (int partitions = 1; partitions <= 2; partitions++) {
                    System.out.println(slow(admin, settings, "version-" + version + "-" + partitions, partitions));
                }
            }
        }
    }
}
JAVA
quietly java -cp "$folder/jars/*" Leaders.java >counts.txt
cat counts.txt
python - <<'PYTHON'
from seen import see

counts = [int(line) for line in open("counts.txt") if line.strip().isdigit()]
for what, slow, some in zip(
    ("version 2, one node", "version 2, two nodes", "version 1, one node", "version 1, two nodes"),
    counts,
    (False, True, False, False),
    strict=True,
):
    see(f"{what}: some of 20 transactions wait for the backoff", slow > 0, some)
PYTHON
