// The adapter for Apache Kafka's Java client: `java -cp 'JARS/*' JavaAdapter.java`.

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
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaAdapter {
    private static final long DEADLINE_MS = 60_000;
    private static final long COPY_DEADLINE_MS = 150_000;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CLOSE = Duration.ofSeconds(1);
    private static final int BATCH = 10;
    private static final int LONG_SESSION_MS = 120_000;
    private static final String OUT = "copy of ";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();
    // Each with its metadata at the time of its join.
    private static final Map<String, KafkaConsumer<String, String>> MEMBERS = new HashMap<>();
    private static final Map<String, ConsumerGroupMetadata> METADATA = new HashMap<>();

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
                answer.put("error", nameOf(reason));
                answer.put("message", String.valueOf(reason.getMessage()));
            }
            say(answer);
        }
        System.exit(0);
    }

    /** Return the class name of an error; a KafkaException may only quote an unexpected response. */
    private static String nameOf(Throwable reason) {
        boolean isQuoted = reason.getClass() == KafkaException.class
            && reason.getMessage().endsWith(Errors.UNKNOWN_SERVER_ERROR.message());
        return isQuoted ? "UnknownServerException" : reason.getClass().getSimpleName();
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
                PRODUCERS.put(text(request, "name"), producer(
                    text(request, "at"), optional(request, "transactional_id"), request.get("timeout_ms").asInt(),
                    request.get("block_ms").asInt(), request.get("in_flight").asInt(5),
                    optional(request, "compression")));
                return null;
            case "init":
                held.initTransactions();
                return null;
            case "begin":
                held.beginTransaction();
                return null;
            case "send":
                return send(held, request);
            case "offsets":
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (JsonNode each : request.get("offsets")) {
                    Optional<Integer> epoch = each.get(3).isNull() ? Optional.empty() : Optional.of(each.get(3).asInt());
                    offsets.put(new TopicPartition(text(request, "topic"), each.get(0).asInt()),
                        new OffsetAndMetadata(each.get(1).asLong(), epoch, each.get(2).asText()));
                }
                held.sendOffsetsToTransaction(offsets, METADATA.getOrDefault(
                    optional(request, "member"), new ConsumerGroupMetadata(text(request, "group"))));
                return null;
            case "join":
                join(request);
                return null;
            case "leave":
                MEMBERS.remove(text(request, "member")).close(CloseOptions.timeout(CLOSE));
                return null;
            case "end_of":
                return endOf(request);
            case "offset_at":
                return offsetAt(request);
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

    private static String optional(JsonNode request, String field) {
        return request.get(field).isNull() ? null : text(request, field);
    }

    private static TopicPartition place(JsonNode request) {
        return new TopicPartition(text(request, "topic"), request.get("partition").asInt());
    }

    private static void join(JsonNode request) {
        KafkaConsumer<String, String> member = consumer(text(request, "at"), "read_committed", Map.of(
            "group.id", text(request, "group"), "session.timeout.ms", LONG_SESSION_MS,
            "group.instance.id", Objects.requireNonNullElse(optional(request, "instance"), "")));
        member.subscribe(List.of(text(request, "topic")));
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (member.assignment().isEmpty() && System.currentTimeMillis() < end) {
            member.poll(POLL);
        }
        MEMBERS.put(text(request, "member"), member);
        METADATA.put(text(request, "member"), member.groupMetadata());
    }

    private static long endOf(JsonNode request) {
        try (KafkaConsumer<String, String> consumer =
                consumer(text(request, "at"), text(request, "isolation"), Map.of())) {
            consumer.assign(List.of(place(request)));
            consumer.seekToEnd(List.of(place(request)));
            return consumer.position(place(request));
        }
    }

    private static Long offsetAt(JsonNode request) {
        try (KafkaConsumer<String, String> consumer =
                consumer(text(request, "at"), text(request, "isolation"), Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(
                Map.of(place(request), request.get("timestamp_ms").asLong())).get(place(request));
            return found == null ? null : found.offset();
        }
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
                text(request, "at"), text(request, "isolation"), Map.of(
                    "fetch.max.wait.ms", request.get("max_wait_ms").asInt(), "max.poll.records", 500,
                    "max.partition.fetch.bytes", request.get("fetch_bytes").asInt()))) {
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
            // The note comes first, because closing may take as long as the last fetch.
            say(new HashMap<>(Map.of("note", records.size())));
        }
        return records;
    }

    private static List<Object> committed(JsonNode request) {
        TopicPartition place = new TopicPartition(text(request, "topic"), request.get("partition").asInt());
        try (KafkaConsumer<String, String> consumer =
                consumer(text(request, "at"), "read_committed", Map.of("group.id", text(request, "group")))) {
            OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
            return found == null ? null : List.of(
                found.offset(), found.metadata(), found.leaderEpoch().orElse(-1));
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

        Map<String, Integer> run() throws Exception {
            while (true) {
                try (KafkaConsumer<String, String> consumer =
                            consumer(text(request, "at"), "read_committed", Map.of(
                                "group.id", text(request, "group"),
                                "group.instance.id", Objects.requireNonNullElse(optional(request, "instance"), ""),
                                "session.timeout.ms", request.get("session_ms").asInt()));
                        KafkaProducer<String, String> producer = producer(
                            text(request, "at"), text(request, "transactional_id"), 10_000, 10_000, 5, null)) {
                    producer.initTransactions();
                    consumer.subscribe(List.of(source));
                    while (goesOn(consumer)) {
                        step(consumer, producer);
                    }
                    return counts;
                } catch (KafkaException failure) {
                    // A new producer ends the former one's transaction, and a new member continues at the group's offset.
                    counts.merge("failures", 1, Integer::sum);
                    if (System.currentTimeMillis() > end) {
                        throw failure;
                    }
                }
            }
        }

        private boolean goesOn(KafkaConsumer<String, String> consumer) {
            int enough = request.get("stop_after").asInt();
            if (enough > 0 && counts.get("commits") >= enough) {
                return false;
            }
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

        private void step(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer)
                throws Exception {
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
            producer.sendOffsetsToTransaction(ends, request.get("metadata").asBoolean()
                ? consumer.groupMetadata() : new ConsumerGroupMetadata(text(request, "group")));
            int every = request.get("abort_every").asInt();
            count++;
            if (count == request.get("hold_at").asInt()) {
                producer.flush();
                say(Map.of("note", count));
                // The test kills this process when it reads the note.
                Thread.sleep(Long.MAX_VALUE);
            }
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

    private static KafkaProducer<String, String> producer(
            String at, String id, int timeoutMs, int blockMs, int inFlight, String compression) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", at);
        if (id != null) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", timeoutMs);
        }
        settings.put("max.in.flight.requests.per.connection", inFlight);
        settings.put("compression.type", Objects.requireNonNullElse(compression, "none"));
        settings.put("max.block.ms", blockMs);
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 10_000);
        settings.put("linger.ms", 0);
        settings.put("reconnect.backoff.max.ms", 200);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String at, String isolation, Map<String, Object> own) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", at);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", 100);
        settings.put("session.timeout.ms", 6_000);
        settings.put("heartbeat.interval.ms", 500);
        settings.put("default.api.timeout.ms", 10_000);
        settings.put("max.poll.records", BATCH);
        settings.put("reconnect.backoff.max.ms", 200);
        own.forEach((name, value) -> {
            if (!value.equals("")) {
                settings.put(name, value);
            }
        });
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
