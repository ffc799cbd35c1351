import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;

/**
 * Share consumers in one JVM. Each line of standard input is a JSON object with one call, each line of standard output
 * is its result.
 */
public class ShareConsumers {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<String, KafkaShareConsumer<String, String>> CONSUMERS = new HashMap<>();

    private static final Map<String, ConsumerRecord<String, String>> DELIVERED = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                run(MAPPER.readTree(line), answer);
            } catch (KafkaException | IllegalStateException error) {
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", error.getMessage());
            }
            System.out.println(MAPPER.writeValueAsString(answer));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(JsonNode call, ObjectNode answer) {
        String name = call.get("name").asText();
        if (call.get("call").asText().equals("open")) {
            Properties settings = new Properties();
            call.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
            KafkaShareConsumer<String, String> opened = new KafkaShareConsumer<>(settings);
            opened.subscribe(List.of(call.get("topic").asText()));
            CONSUMERS.put(name, opened);
            return;
        }
        KafkaShareConsumer<String, String> consumer = CONSUMERS.get(name);
        switch (call.get("call").asText()) {
            case "poll" -> {
                ArrayNode records = answer.putArray("records");
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(call.get("ms").asLong()))) {
                    DELIVERED.put(name + "-" + each.partition() + "-" + each.offset(), each);
                    ObjectNode record = records.addObject();
                    record.put("topic", each.topic()).put("partition", each.partition()).put("offset", each.offset());
                    record.put("value", each.value()).put("delivery_count", each.deliveryCount().get());
                }
            }
            case "acknowledge" -> consumer.acknowledge(
                DELIVERED.get(name + "-" + call.get("partition").asInt() + "-" + call.get("offset").asLong()),
                AcknowledgeType.valueOf(call.get("type").asText()));
            case "commit" -> {
                ObjectNode results = answer.putObject("results");
                Map<TopicIdPartition, Optional<KafkaException>> committed = consumer.commitSync();
                committed.forEach((partition, error) -> results.put(
                    String.valueOf(partition.partition()),
                    error.map(each -> each.getClass().getSimpleName()).orElse("")));
            }
            case "close" -> {
                consumer.close(Duration.ofSeconds(20));
                CONSUMERS.remove(name);
            }
            default -> throw new IllegalStateException("unknown call");
        }
    }
}
