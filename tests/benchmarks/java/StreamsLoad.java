import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the records of a topic by a key in their value, exactly once, with commits at a short interval.
 *
 * Each record goes through a repartition topic, a store with a changelog, and an output topic. Arguments: address,
 * input topic, output topic, number of records, commit interval in ms. A reader of committed data counts the output
 * records, one for each input record. The program prints "warm" after the first quarter, and "done" after the last one.
 */
public class StreamsLoad {
    private static final int KEYS = 1000;

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String input = arguments[1];
        String output = arguments[2];
        long records = Long.parseLong(arguments[3]);
        Path folder = Files.createTempDirectory("streams");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.Bytes(), Serdes.Bytes()))
            .selectKey((key, value) -> Math.floorMod(value.hashCode(), KEYS))
            .groupByKey(Grouped.with(Serdes.Integer(), Serdes.Bytes()))
            .count(Materialized.<Integer, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.Integer()).withValueSerde(Serdes.Long()))
            .toStream()
            .to(output, Produced.with(Serdes.Integer(), Serdes.Long()));

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, input + "-counts");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[4]);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");

        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            readAll(records, address, output);
        }
        // The folder is temporary, and nothing more is to be waited for.
        Runtime.getRuntime().halt(0);
    }

    private static void readAll(long records, String address, String output) {
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, address, ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo each : consumer.partitionsFor(output)) {
                partitions.add(new TopicPartition(output, each.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long seen = 0;
            while (seen < records / 4) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            System.out.println("warm " + seen);
            while (seen < records) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            System.out.println("done " + seen);
        }
    }
}
