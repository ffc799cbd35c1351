package eos;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;

/** What a reader of committed records gets when answers are lost, transactions hang and brokers crash. */
@Timeout(120)
class ExactlyOnceTest {
  @RegisterExtension
  static final EosBroker kafka = new EosBroker("--brokers", "2", "--clock", "virtual");

  private static final TopicPartition ORDERS = new TopicPartition("orders", 0);

  @BeforeEach
  void createTopic() {
    kafka.post("create_topic", Map.of("name", "orders"));
  }

  @Test
  void aLostAnswerOfTheCommitLeavesOneRecord() {
    JsonNode fault = kafka.post("fault", Map.of(
        "api", "EndTxn",
        "transactional_id", "shop",
        "when", "after_apply",
        "action", Map.of("type", "Disconnect"),
        "times", 1));
    try (KafkaProducer<String, String> producer = producer("shop")) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>("orders", "tea"));
      producer.commitTransaction();
    }
    assertEquals(1, kafka.get("wait_for_hits", Map.of("id", fault.get("id").asText())).get("hits").asInt());
    assertEquals(List.of("tea"), committed(1));
  }

  @Test
  void aHangingTransactionHidesTheRecordsBehindItUntilItTimesOut() {
    kafka.post("produce", Map.of("topic", "orders", "values", List.of("lost"), "transactional", "gone", "end", "open"));
    try (KafkaProducer<String, String> producer = producer("shop")) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>("orders", "tea"));
      producer.commitTransaction();
    }
    JsonNode partition = kafka.get("partition", Map.of("topic", "orders", "partition", 0));
    assertEquals(0, partition.get("last_stable_offset").asInt());
    assertTrue(partition.get("high_watermark").asInt() > 1);
    assertEquals(List.of(), committed(0));

    kafka.post("advance", Map.of("seconds", 90));
    assertEquals(List.of("tea"), committed(1));
    JsonNode gone = kafka.get("transaction", Map.of("transactional_id", "gone"));
    assertTrue(gone.get("state").asText().endsWith("Abort"), gone::toString);
  }

  @Test
  void aCoordinatorThatCrashesInTheMiddleOfACommitDoesNotLoseIt() throws InterruptedException {
    String held = kafka.post("fault", Map.of(
        "api", "EndTxn",
        "transactional_id", "shop",
        "when", "mid",
        "action", Map.of("type", "Hold"),
        "times", 1)).get("id").asText();
    try (KafkaProducer<String, String> producer = producer("shop")) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>("orders", "tea"));
      Thread commit = new Thread(producer::commitTransaction);
      commit.start();
      // The decision is in the log, its marker is not.
      kafka.get("wait_for_hits", Map.of("id", held, "timeout", 60));
      int coordinator = kafka.get("coordinator", Map.of("transactional_id", "shop")).get("broker").asInt();
      kafka.post("crash_broker", Map.of("broker", coordinator));
      kafka.post("remove_fault", Map.of("id", held));
      commit.join(60_000);
    }
    assertEquals(List.of("tea"), committed(1));
  }

  @Test
  void aMistakeIsRefusedWithWhatToDo() {
    IllegalStateException refused = assertThrows(IllegalStateException.class,
        () -> kafka.post("fault", Map.of("api", "EndTx", "action", Map.of("type", "Drop"))));
    assertTrue(refused.getMessage().contains("did you mean 'EndTxn'?"), refused::getMessage);
  }

  @Test
  void aClientChoosesTheAddressThatIsAdvertised() {
    String own = kafka.bootstrapServers();
    String mapped = own.replace("127.0.0.1", "localhost");
    assertEquals(mapped, new EosBroker(kafka.control(), mapped).bootstrapServers());
    assertEquals(own, new EosBroker(kafka.control(), own).bootstrapServers());
  }

  /** Return what a consumer of read_committed gets: at least so many records, and all up to the end it sees. */
  private static List<String> committed(int atLeast) {
    Map<String, Object> settings = new HashMap<>(Map.of("isolation.level", "read_committed"));
    settings.put("bootstrap.servers", kafka.bootstrapServers());
    List<String> found = new ArrayList<>();
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.assign(List.of(ORDERS));
      consumer.seekToBeginning(List.of(ORDERS));
      // The end of what is committed; markers need an offset too.
      while (found.size() < atLeast || consumer.position(ORDERS) < consumer.endOffsets(List.of(ORDERS)).get(ORDERS)) {
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
          found.add(each.value());
        }
      }
    }
    return found;
  }

  private static KafkaProducer<String, String> producer(String transactionalId) {
    Map<String, Object> settings = new HashMap<>(Map.of("transactional.id", transactionalId));
    settings.put("bootstrap.servers", kafka.bootstrapServers());
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }
}
