// Lend Apache's Java client to the scenarios: `java -cp 'JARS/*' JavaAdapter.java`.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaAdapter {
    private static final long DEADLINE_MS = 60_000;
    private static final long COPY_DEADLINE_MS = 150_000;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CLOSE = Duration.ofSeconds(1);
    private static final int BATCH = 10;
    private static final String OUT = "copy of ";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode request = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("answer", command(request));
            } catch (Exception failure) {
                Throwable reason = failure instanceof ExecutionException ? failure.getCause() : failure;
                answer.clear();
                answer.put("error", reason.getClass().getSimpleName());
                answer.put("message", String.valueOf(reason.getMessage()));
            }
            say(answer);
        }
        System.exit(0);
    }

    private static void say(Map<String, Object> answer) throws Exception {
        System.out.println(JSON.writeValueAsString(answer));
        System.out.flush();
    }

    private static Object command(JsonNode request) throws Exception {
        KafkaProducer<String, String> held = PRODUCERS.get(request.path("name").asText());
        switch (request.get("do").asText()) {
            case "version":
                Properties build = new Properties();
                build.load(KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties"));
                return List.of("kafka-clients", build.getProperty("version"));
            case "producer":
                KafkaProducer<String, String> made = producer(
                    text(request, "at"), text(request, "transactional_id"),
                    request.get("timeout_ms").asInt(), request.get("block_ms").asInt());
                PRODUCERS.put(text(request, "name"), made);
                return null;
            case "begin":
                held.beginTransaction();
                return null;
            case "send":
                return send(held, request);
            case "offsets":
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (JsonNode each : request.get("offsets")) {
                    offsets.put(new TopicPartition(text(request, "topic"), each.get(0).asInt()),
                        new OffsetAndMetadata(each.get(1).asLong(), each.get(2).asText()));
                }
                held.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(text(request, "group")));
                return null;
            case "commit":
                held.commitTransaction();
                return null;
            case "abort":
                held.abortTransaction();
                return null;
            case "close":
                PRODUCERS.remove(text(request, "name")).close(CLOSE);
                return null;
            case "read":
                return read(request);
            case "committed":
                return committed(request);
            case "copy":
                return new Copy(request).run();
            default:
                throw new IllegalArgumentException(request.get("do").asText());
        }
    }

    private static String text(JsonNode request, String field) {
        return request.get(field).asText();
    }

    private static List<Long> send(KafkaProducer<String, String> producer, JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : request.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(
                text(request, "topic"), request.get("partition").asInt(), null, value.asText())));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    private static List<List<Object>> read(JsonNode request) throws Exception {
        String topic = text(request, "topic");
        int partitions = request.get("partitions").asInt();
        String until = request.get("until").isNull() ? null : text(request, "until");
        List<List<Object>> records = new ArrayList<>();
        Set<Integer> ended = new HashSet<>();
        long end = System.currentTimeMillis() + DEADLINE_MS;
        long last = System.currentTimeMillis();
        try (KafkaConsumer<String, String> consumer = consumer(
                text(request, "at"), null, text(request, "isolation"), request.get("max_wait_ms").asInt())) {
            List<TopicPartition> places = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                places.add(new TopicPartition(topic, partition));
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            while (until != null ? ended.size() < partitions
                    : records.size() < request.get("at_least").asInt()
                        || System.currentTimeMillis() - last <= 1000 * request.get("quiet_s").asDouble()) {
                if (System.currentTimeMillis() > end) {
                    throw new TimeoutException("read " + records);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    records.add(List.of(record.partition(), record.offset(), record.value()));
                    last = System.currentTimeMillis();
                    if (record.value().equals(until)) {
                        ended.add(record.partition());
                    }
                    if (records.size() == request.get("tell").asInt(-1)) {
                        say(new HashMap<>(Map.of("note", records.size())));
                    }
                }
            }
            // Closing may take as long as the last fetch.
            say(new HashMap<>(Map.of("note", records.size())));
        }
        return records;
    }

    private static List<Object> committed(JsonNode request) {
        TopicPartition place = new TopicPartition(text(request, "topic"), request.get("partition").asInt());
        try (KafkaConsumer<String, String> consumer =
                consumer(text(request, "at"), text(request, "group"), "read_committed", 100)) {
            OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
            return found == null ? null : List.of(found.offset(), found.metadata());
        }
    }

    /** Consume, transform, produce, until the last record of each partition has been copied. */
    private static final class Copy {
        private final JsonNode request;
        private final String source;
        private final Map<Integer, Long> lasts = new HashMap<>();
        private final Map<String, Integer> counts = new HashMap<>(Map.of("commits", 0, "aborts", 0, "failures", 0));
        private final long end = System.currentTimeMillis() + COPY_DEADLINE_MS;
        private int count;

        Copy(JsonNode request) {
            this.request = request;
            this.source = text(request, "source");
        }

        Map<String, Integer> run() {
            while (true) {
                try (KafkaConsumer<String, String> consumer =
                            consumer(text(request, "at"), text(request, "group"), "read_committed", 100);
                        KafkaProducer<String, String> producer =
                            producer(text(request, "at"), text(request, "transactional_id"), 10_000, 10_000)) {
                    consumer.subscribe(List.of(source));
                    while (goesOn(consumer)) {
                        step(consumer, producer);
                    }
                    return counts;
                } catch (KafkaException failure) {
                    // A new producer ends what the old one left, and a new member begins where the group is.
                    counts.merge("failures", 1, Integer::sum);
                    if (System.currentTimeMillis() > end) {
                        throw failure;
                    }
                }
            }
        }

        private boolean goesOn(KafkaConsumer<String, String> consumer) {
            boolean done = lasts.size() == request.get("partitions").asInt();
            for (Map.Entry<Integer, Long> last : lasts.entrySet()) {
                TopicPartition place = new TopicPartition(source, last.getKey());
                OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
                done &= found != null && found.offset() > last.getValue();
            }
            if (!done && System.currentTimeMillis() > end) {
                throw new TimeoutException("copied " + counts + ", seen the ends of " + lasts.keySet());
            }
            return !done;
        }

        private void step(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                ends.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                if (record.value().equals(text(request, "until"))) {
                    lasts.put(record.partition(), record.offset());
                } else {
                    producer.send(new ProducerRecord<>(
                        text(request, "target"), record.partition(), null, OUT + record.value()));
                }
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            int every = request.get("abort_every").asInt();
            count++;
            if (every > 0 && count % every == 0) {
                producer.abortTransaction();
                counts.merge("aborts", 1, Integer::sum);
                for (TopicPartition place : records.partitions()) {
                    consumer.seek(place, records.records(place).get(0).offset());
                }
            } else {
                producer.commitTransaction();
                counts.merge("commits", 1, Integer::sum);
            }
        }
    }

    private static KafkaProducer<String, String> producer(String at, String id, int timeoutMs, int blockMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", at);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("max.block.ms", blockMs);
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 10_000);
        settings.put("linger.ms", 0);
        settings.put("reconnect.backoff.max.ms", 200);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException failure) {
            producer.close(CLOSE);
            throw failure;
        }
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String at, String group, String isolation, int maxWaitMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", at);
        if (group != null) {
            settings.put("group.id", group);
        }
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", maxWaitMs);
        settings.put("session.timeout.ms", 6_000);
        settings.put("heartbeat.interval.ms", 500);
        settings.put("default.api.timeout.ms", 10_000);
        settings.put("max.poll.records", BATCH);
        settings.put("reconnect.backoff.max.ms", 200);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
