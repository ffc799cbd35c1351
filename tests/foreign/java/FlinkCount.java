import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Writes for each line "count line", where count is the number of lines of its key so far, exactly once. */
public final class FlinkCount {
    /** Lines begin with their key and a space. */
    static String keyOf(String line) {
        return line.substring(0, line.indexOf(' '));
    }

    static final class Counting extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
        }

        @Override
        public void processElement(String line, Context context, Collector<String> out) throws Exception {
            long now = (count.value() == null ? 0 : count.value()) + 1;
            count.update(now);
            out.collect(now + " " + line);
        }
    }

    /** Returns the newest complete checkpoint below a folder. */
    static Optional<Path> newestCheckpoint(Path folder) throws Exception {
        if (!Files.isDirectory(folder)) return Optional.empty();
        try (Stream<Path> paths = Files.walk(folder, 3)) {
            return paths.filter(path -> path.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparing(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], input = arguments[2], output = arguments[3];
        Path folder = Path.of(arguments[1]).toAbsolutePath();
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", folder.toUri().toString());
        settings.setString("execution.checkpointing.num-retained", "2");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("taskmanager.numberOfTaskSlots", "2");
        newestCheckpoint(folder).ifPresent(
                path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(servers)
                .setTopics(input)
                .setGroupId("count-" + output)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(servers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("count-" + output)
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(output)
                        .setKeySerializationSchema(
                                (String line) -> line.split(" ")[1].getBytes(StandardCharsets.UTF_8))
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
                .keyBy(FlinkCount::keyOf)
                .process(new Counting())
                .sinkTo(sink);
        flink.execute("count");
    }
}
