#!/bin/bash
# Run: Kafka Streams 4.4.0 with Apache Kafka 4.4.0 (one node). An app copies three records, of which the second is bad, with
# exactly_once_v2 and with at_least_once. It is started twice. Needs a JDK.
#
# Seen: 1. The processor throws, the default handlers fail, and errors.dead.letter.queue.topic.name is set. With at_least_once each
#          start leaves a dead letter. With exactly_once_v2 it is aborted, or never sent: read_committed readers get none.
#       2. The result is too large for the producer, and the production handler says resume. With at_least_once the app goes on and
#          copies the third record. With exactly_once_v2 the app asks the handler a few times and ends, at each start, and nothing
#          is committed, the first record neither.
#
# Surprising, because the letter is written to find the record that stops an app, and because a handler that resumes is written for
# an app that must not stop.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
jars_of streams org.apache.kafka:kafka-streams:4.4.0
cat >Letters.java <<'JAVA'
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.ErrorHandlerContext;
import org.apache.kafka.streams.errors.ProductionExceptionHandler;

public class Letters {
    public static class Resume implements ProductionExceptionHandler {
        @Override
        public Response handleError(ErrorHandlerContext context, ProducerRecord<byte[], byte[]> record, Exception error) {
            System.out.println("handler");
            return Response.resume();
        }

        @Override
        public void configure(Map<String, ?> settings) {}
    }

    static String result(String app, String value) {
        if (!value.equals("bad")) {
            return value;
        }
        if (app.startsWith("throws")) {
            throw new IllegalStateException("bad");
        }
        return "x".repeat(3_000_000);
    }

    public static void main(String[] args) {
        String app = args[0];
        var settings = new Properties();
        settings.put("application.id", app);
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("state.dir", "state");
        settings.put("processing.guarantee", args[1]);
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "2000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        settings.put("errors.dead.letter.queue.topic.name", app + "-dead");
        settings.put("production.exception.handler", Resume.class);
        var builder = new StreamsBuilder();
        builder.<String, String>stream(app + "-input").mapValues(value -> result(app, value)).to(app + "-output");
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see, wait_for


def said(log, word):
    """Return how often the app has said the word."""
    with open(log, encoding="utf-8") as lines:
        return lines.read().splitlines().count(word)


def read(topic, isolation="read_committed"):
    """Return the values in the topic."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": isolation, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(10)) and not message.error():
        values.append(message.value().decode())
    consumer.close()
    return values


def started(app, guarantee, until):
    """Start the app, and end it when the condition is true, if it has not ended before; return its log."""
    log = f"{app}.log"
    with open(log, "w", encoding="utf-8") as output:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", "streams/jars/*", "Letters.java", app, guarantee]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    wait_for(lambda: process.poll() is not None or until(), 60)
    process.kill()
    process.wait()
    return log


producer = Producer({"bootstrap.servers": BOOTSTRAP})
for kind in ("throws", "large"):
    for guarantee in ("at_least_once", "exactly_once_v2"):
        app = f"{kind}-{guarantee}"
        for topic in ("input", "output", "dead"):
            create(f"{app}-{topic}")
        for value in ("one", "bad", "three"):
            producer.produce(f"{app}-input", value)
        producer.flush()
        dead, output = f"{app}-dead", f"{app}-output"
        exactly_once = guarantee == "exactly_once_v2"
        print(app)
        for start in (1, 2):
            if kind == "throws":
                started(app, guarantee, lambda: len(read(dead, "read_uncommitted")) == start and stable(dead) == high(dead))
                see(f"  start {start}: letters at read_committed", read(dead), [] if exactly_once else ["bad"] * start)
                # On a busy machine the app may end before its letter is sent.
                aborted = read(dead, "read_uncommitted")
                see("    at read_uncommitted, nothing but the letters", set(aborted) <= {"bad"}, True)
                print(f"    which are {len(aborted)}")
            elif exactly_once:
                log = started(app, guarantee, lambda: False)
                see(f"  start {start}: more than one call of the handler, and the end", (said(log, "handler") > 1, said(log, "PENDING_ERROR")), (True, 1))
                see("    output", read(output), [])
            elif start == 1:
                log = started(app, guarantee, lambda: "three" in read(output))
                see("  calls of the handler, and errors", (said(log, "handler"), said(log, "PENDING_ERROR")), (1, 0))
                see("    output", read(output), ["one", "three"])
PYTHON
quietly python drive.py
