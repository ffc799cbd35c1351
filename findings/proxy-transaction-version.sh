#!/bin/bash
# Run: the Kroxylicious proxy 0.10.0 and 0.12.0 (without filters) between Apache Kafka 4.4.0 (one node) and its Java client
# 4.4.0, and confluent-kafka 2.16.1. Needs a JDK.
#
# Seen: 1. Through 0.10.0 each transaction of the Java client fails with TransactionAbortableException, and so does its abort.
#          Those of confluent-kafka (version 1) succeed.
#       2. Through 0.12.0 both succeed.
#
# Surprising, because a proxy that lowers the versions of APIs to those it knows is expected to give a new client the older
# protocol. But it passes on the brokers' feature transaction.version=2, and the Java client looks at that alone: it adds no
# partition to its transaction, and then writes with Produce 11, which does not add it either.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
for version in 0.10.0 0.12.0; do
    jars_of "$version" "io.kroxylicious:kroxylicious-runtime:$version"
done
cat >Proxy.java <<'JAVA'
import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

public class Proxy {
    public static void main(String[] args) throws Exception {
        var parser = new ConfigParser();
        var configuration = parser.parseConfiguration(Files.readString(Path.of(args[0])));
        try (var proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
JAVA
cat >Write.java <<'JAVA'
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Write {
    interface Step {
        void run() throws Exception;
    }

    static void show(String name, Step step) {
        String what = "done";
        try {
            step.run();
        } catch (ExecutionException error) {
            what = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            // Of which class depends on the moment.
            System.err.println(error);
            what = "refused";
        }
        System.out.println(name + ": " + what);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "transactional.id", "java-" + args[1]);
        try (var admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            System.out.println("transaction.version: " + features.get("transaction.version").maxVersionLevel());
        }
        var producer = new KafkaProducer<String, String>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        show("send", () -> producer.send(new ProducerRecord<>(args[1], "java")).get());
        show("commit", producer::commitTransaction);
        if (args[1].equals("0.10.0")) {
            show("abort", producer::abortTransaction);
        }
        System.exit(0);
    }
}
JAVA
cat >drive.py <<'PYTHON'
import socket
import subprocess

from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, stable
from seen import see, wait_for

OLD = """
virtualClusters:
  proxied:
    targetCluster: {bootstrap_servers: "%s"}
    clusterNetworkAddressConfigProvider:
      type: PortPerBrokerClusterNetworkAddressConfigProvider
      config: {bootstrapAddress: "127.0.0.1:%d"}
"""
NEW = """
virtualClusters:
  - name: proxied
    targetCluster: {bootstrapServers: "%s"}
    gateways:
      - name: default
        portIdentifiesNode: {bootstrapAddress: "127.0.0.1:%d"}
"""


def java(jars, *arguments):
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", *arguments]


def listens(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def first_free_port():
    """Return a free port; the next ones, which the proxy takes for its brokers, are most likely free as well."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


refused = {"send": "TransactionAbortableException", "commit": "refused", "abort": "refused"}
taken = {"send": "done", "commit": "done"}
for number, (version, configuration, stated, end) in enumerate((("0.10.0", OLD, refused, 2), ("0.12.0", NEW, taken, 4)), 1):
    port = first_free_port()
    with open(f"{version}.yaml", "w") as file:
        file.write(configuration % (BOOTSTRAP, port))
    log = open(f"{version}.log", "w")
    proxy = subprocess.Popen(java(f"{version}/jars", "Proxy.java", f"{version}.yaml"), stdout=log, stderr=log)
    try:
        see(f"{number}. Kroxylicious {version} listens", wait_for(lambda: listens(port)), True)
        create(version)
        written = subprocess.check_output(java("jars", "Write.java", f"127.0.0.1:{port}", version), text=True)
        seen = dict(line.split(": ") for line in written.splitlines())
        see("   transaction.version", seen.pop("transaction.version"), "2")
        see("   Java", seen, stated)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": f"python-{version}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(version, "python")
        producer.commit_transaction(60)
        see("   end, after one more transaction of confluent-kafka", wait_for(lambda: stable(version) == end) and stable(version), end)
    finally:
        proxy.kill()
        proxy.wait()
PYTHON
quietly python drive.py
