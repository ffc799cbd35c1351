#!/bin/bash
# Run: Kafka Streams 4.4.0 with exactly_once_v2 and Apache Kafka 4.4.0 (one node). An app copies a record, is killed before its
# commit, and is started again with the same state directory. Needs a JDK.
#
# Seen: 1. Without a store: the second instance has another transactional id. The transaction of the first one stays open until
#          its timeout, and a read_committed reader gets nothing of what the second has committed behind it.
#       2. With a persistent store: the id is the same, and the second instance ends the transaction when it starts.
#
# Surprising, because the id comes from a process id that is kept in the state directory, but is only kept there (and the
# directory only made) if some store is persistent. The simplest apps hold their readers back.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12
apache_kafka 4.4.0
jars_of streams org.apache.kafka:kafka-streams:4.4.0
cat >Copy.java <<'JAVA'
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Copy {
    static class Keep implements Processor<String, String, String, String> {
        private final boolean keeps;
        private ProcessorContext<String, String> context;

        Keep(boolean keeps) {
            this.keeps = keeps;
        }

        public void init(ProcessorContext<String, String> given) {
            context = given;
        }

        public void process(Record<String, String> record) {
            if (keeps) {
                KeyValueStore<String, String> store = context.getStateStore("store");
                store.put("last", record.value());
            }
            context.forward(record);
        }
    }

    public static void main(String[] args) {
        String app = args[0];
        boolean keeps = !app.equals("none");
        var settings = new Properties();
        settings.put("application.id", app);
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("state.dir", "state");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("producer.transaction.timeout.ms", "300000");
        settings.put("commit.interval.ms", "300000");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "2000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        var builder = new StreamsBuilder();
        if (keeps) {
            var kind = Stores.persistentKeyValueStore("store");
            builder.addStateStore(Stores.keyValueStoreBuilder(kind, Serdes.String(), Serdes.String()));
        }
        String[] stores = keeps ? new String[] {"store"} : new String[0];
        builder.<String, String>stream(app + "-input").process(() -> new Keep(keeps), stores).to(app + "-output");
        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

import kafka
from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see, wait_for


def start(app):
    log = open("streams.log", "a")
    return subprocess.Popen(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", "streams/jars/*", "Copy.java", app], stdout=log, stderr=log
    )


def states(app):
    """Return the state of each transactional id of the app."""
    listed = admin.list_transactions()
    found = [each for broker in listed.values() for each in broker if each.transactional_id.startswith(f"{app}-")]
    return sorted(each.state.value for each in found)


admin = kafka.KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
for app, ids, readable in (
    ("none", ["CompleteCommit", "Ongoing"], 0),
    ("persistent", ["CompleteCommit"], 4),
):
    output = f"{app}-output"
    create(f"{app}-input")
    create(output)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    producer.produce(f"{app}-input", "record")
    producer.flush()
    first = start(app)
    wait_for(lambda: high(output) > 0)
    first.kill()
    first.wait()
    see(f"{app}: ids after the kill", states(app), ["Ongoing"])
    second = start(app)
    # The record again, and before it the marker if the transaction of the first instance has been ended.
    wait_for(lambda: high(output) > (2 if app == "persistent" else 1))
    second.terminate()
    second.wait()
    see("  ids after the second instance", wait_for(lambda: states(app) == ids, 30) and states(app), ids)
    see("  readable at read_committed", wait_for(lambda: stable(output) == readable, 30) and stable(output), readable)
    print(f"  of {high(output)}")
admin.close()
PYTHON
quietly python drive.py
