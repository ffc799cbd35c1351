#!/bin/bash
# Run: Flink 2.2.1 with its Kafka connector 5.0.0-2.2 and Apache Kafka 4.4.0 (one node). Two jobs copy a topic each to one output,
# exactly once, with transactional ids from a pool (TransactionNamingStrategy.POOLING). Their prefixes are "orders" and "orders2".
# A third producer in the output has the id "payments-1". Needs a JDK.
#
# Seen: 1. While "orders2" and "payments-1" have open transactions in the output, "orders" starts for the first time. It aborts
#          the transaction of "orders2", and leaves "payments-1" alone. "orders2" then stops with a savepoint, without an error,
#          and goes on from it with its second record. The first one, of the aborted transaction, is lost.
#       2. With the prefixes "bills2." and "bills." nothing is aborted, and nothing is lost.
#       3. With INCREMENTING, the default, the same: "parcels" starts beside an open transaction of "parcels2".
#
# Surprising, because the two prefixes differ, which is all that the setting asks for, and because exactly once should end in an
# error rather than in a loss. With a pool, a job looks up the open transactions of its topics, and takes for its own those whose
# ids begin with its prefix, letter by letter. The refused commit of the other job is a warning in its log.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12
apache_kafka 4.4.0
jars_of flink org.apache.flink:flink-connector-kafka:5.0.0-2.2 \
    org.apache.flink:flink-connector-base:2.2.1 \
    org.apache.flink:flink-clients:2.2.1 \
    org.apache.flink:flink-streaming-java:2.2.1
cat >Copy.java <<'JAVA'
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    /** Copies the topic PREFIX-input to the topic OUTPUT, with an INTERVAL of checkpoints and a NAMING of ids, from a SAVEPOINT. */
    public static void main(String[] args) throws Exception {
        String prefix = args[0];
        String folder = System.getProperty("user.dir");
        var settings = new Configuration();
        settings.setString("execution.checkpointing.interval", args[2]);
        settings.setString("restart-strategy.type", "none");
        if (args.length > 4) {
            settings.setString("execution.state-recovery.path", args[4]);
        }
        settings.setString("rest.bind-port", "0");
        settings.setString("taskmanager.memory.network.min", "16mb");
        settings.setString("taskmanager.memory.network.max", "16mb");
        settings.setString("taskmanager.memory.managed.size", "16mb");
        var environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(1);
        String servers = System.getenv("BOOTSTRAP");
        var source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(servers)
                        .setTopics(prefix + "-input")
                        .setGroupId(prefix)
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        var values =
                KafkaRecordSerializationSchema.builder()
                        .setTopic(args[1])
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build();
        var sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(servers)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(prefix)
                        .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(args[3]))
                        .setProperty("transaction.timeout.ms", "300000")
                        .setRecordSerializer(values)
                        .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        var job = environment.executeAsync(prefix);
        // A line of the standard input is the order to stop.
        System.in.read();
        System.out.println(job.stopWithSavepoint(false, "file://" + folder + "/savepoints", SavepointFormatType.CANONICAL).get());
        System.exit(0);
    }
}
JAVA
javac -cp 'flink/jars/*' -d classes Copy.java
cat >drive.py <<'PYTHON'
import subprocess

import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_clients import BOOTSTRAP, create, high, stable, transactional
from seen import see, wait_for

JAVA = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.util=ALL-UNNAMED"]
JAVA += ["--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", "classes:flink/jars/*", "Copy"]
admin = kafka.KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def states(prefix):
    """Return the states of the transactional ids that begin like this."""
    listed = [each for broker in admin.list_transactions().values() for each in broker]
    return {each.state.value for each in listed if each.transactional_id.startswith(f"{prefix}-")}


def give(prefix, value):
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    producer.produce(f"{prefix}-input", value)
    producer.flush()


def start(prefix, output, interval, naming, *savepoint):
    log = open(f"{prefix}.log", "a")
    command = [*JAVA, prefix, output, interval, naming, *savepoint]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)


def beside(first, second, naming):
    """Let a job run beside an open transaction of another; return the other's job, and whether its transaction is open then."""
    output = f"{first}-output"
    for topic in (output, f"{first}-input", f"{second}-input"):
        create(topic)
    payments.begin_transaction()
    payments.produce(output, "payment")
    payments.flush()
    give(first, f"first of {first}")
    # It makes no checkpoint before it stops.
    one = start(first, output, "1h", naming)
    wait_for(lambda: high(output) == 2)
    see(f"{naming}, {first} has an open transaction", "Ongoing" in states(first), True)
    give(second, f"first of {second}")
    two = start(second, output, "1s", naming)
    see(f"  {second} has committed", wait_for(lambda: "CompleteCommit" in states(second)), True)
    answer = "Ongoing" in states(first)
    see("  the transaction of payments is open", "Ongoing" in states("payments"), True)
    two.kill()
    two.wait()
    payments.abort_transaction()
    return one, answer


def read(topic):
    """Return the values of the topic at read_committed."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while consumer.position([TopicPartition(topic, 0)])[0].offset < stable(topic):
        message = consumer.poll(1)
        if message is not None:
            found.append(message.value().decode())
    consumer.close()
    return found


payments = transactional("payments-1")
for first, second, naming, stays in (
    ("orders2", "orders", "POOLING", False),
    ("bills2.", "bills.", "POOLING", True),
    ("parcels2", "parcels", "INCREMENTING", True),
):
    job, is_open = beside(first, second, naming)
    see(f"  the transaction of {first} is open", is_open, stays)
    savepoint = job.communicate("stop\n")[0].strip()
    see(f"  {first} stops with a savepoint", (job.returncode, "savepoint" in savepoint), (0, True))
    give(first, f"second of {first}")
    output = f"{first}-output"
    again = start(first, output, "1s", naming, savepoint)
    wait_for(lambda: f"second of {first}" in read(output))
    again.kill()
    again.wait()
    stated = [f"first of {second}"] + [f"first of {first}"] * stays + [f"second of {first}"]
    see("  read_committed, after it has gone on from there", sorted(read(output)), sorted(stated))
admin.close()
PYTHON
quietly python drive.py
