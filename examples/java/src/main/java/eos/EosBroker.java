package eos;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A JUnit 5 extension: one {@code broker-core} for all tests of a class, empty and without faults at the start of each.
 *
 * <pre>{@code @RegisterExtension static final EosBroker kafka = new EosBroker("--clock", "virtual");}</pre>
 *
 * A broker that runs already, such as one in a container whose ports are mapped, is controlled by its address:
 *
 * <pre>{@code new EosBroker(URI.create("http://localhost:32769"), "localhost:32768")}</pre>
 *
 * {@code get} and {@code post} call the addresses of the control API, which has the names and arguments of Python's
 * EmbeddedBroker.
 */
public final class EosBroker implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
  private static final String CONTROLLED = "is controlled at ";
  private static final Duration TIMEOUT = Duration.ofSeconds(60);
  private static final ObjectMapper JSON = new ObjectMapper();

  // Without HTTP_1_1 the client asks for an upgrade to HTTP/2 first.
  private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final List<String> options;
  private Process process;
  private String address;
  private String empty;

  /** Options are those of the command, such as {@code --brokers 3}. */
  public EosBroker(String... options) {
    this.options = List.of(options);
  }

  /** Control a broker that runs already; clients connect to {@code advertised}, null if its port is not mapped. */
  public EosBroker(URI control, String advertised) {
    this();
    address = control.toString();
    if (advertised != null) {
      post("advertise", Map.of("addresses", advertised));
    }
  }

  @Override
  public void beforeAll(ExtensionContext context) throws IOException {
    if (address == null) {
      start();
    }
    empty = post("snapshot", Map.of()).get("id").asText();
  }

  private void start() throws IOException {
    List<String> command = new ArrayList<>(List.of(System.getProperty("broker.command", "broker-core").split(" ")));
    command.addAll(List.of("--port", "0", "--control-port", "0", "--log-level", "WARNING"));
    command.addAll(options);
    process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    BufferedReader output = process.inputReader(StandardCharsets.UTF_8);
    for (String line = output.readLine(); line != null; line = output.readLine()) {
      if (line.contains(CONTROLLED)) {
        address = line.substring(line.indexOf(CONTROLLED) + CONTROLLED.length());
        return;
      }
    }
    throw new IOException("broker-core has ended; its errors are above. Is it installed? pip install '.[control]'");
  }

  @Override
  public void beforeEach(ExtensionContext context) {
    post("reset", Map.of());
    post("restart", Map.of());
    post("restore", Map.of("id", empty));
  }

  @Override
  public void afterAll(ExtensionContext context) throws InterruptedException {
    if (process == null) {
      return; // It was not started here.
    }
    process.destroy();
    if (!process.waitFor(TIMEOUT.toSeconds(), TimeUnit.SECONDS)) {
      process.destroyForcibly();
    }
  }

  /** The address of the control API. */
  public URI control() {
    return URI.create(address);
  }

  /** The addresses that Kafka clients connect to. */
  public String bootstrapServers() {
    return get("about", Map.of()).get("bootstrap_servers").asText();
  }

  /** Call an address that reads. */
  public JsonNode get(String name, Map<String, ?> parameters) {
    String query = parameters.entrySet().stream()
        .map(each -> each.getKey() + "=" + URLEncoder.encode(String.valueOf(each.getValue()), StandardCharsets.UTF_8))
        .collect(Collectors.joining("&"));
    return send(name, HttpRequest.newBuilder(URI.create(address + "/" + name + "?" + query)).GET());
  }

  /** Call an address that acts. */
  public JsonNode post(String name, Map<String, ?> fields) {
    try {
      return send(name, HttpRequest.newBuilder(URI.create(address + "/" + name))
          .header("Content-Type", "application/json")
          .POST(BodyPublishers.ofByteArray(JSON.writeValueAsBytes(fields))));
    } catch (IOException error) {
      throw new IllegalArgumentException("not the fields of " + name + ": " + fields, error);
    }
  }

  private JsonNode send(String name, HttpRequest.Builder request) {
    try {
      HttpResponse<String> answer = http.send(request.timeout(TIMEOUT).build(), BodyHandlers.ofString());
      if (answer.statusCode() >= 300) {
        throw new IllegalStateException(name + " was refused (" + answer.statusCode() + "): " + answer.body());
      }
      return JSON.readTree(answer.body());
    } catch (IOException error) {
      throw new IllegalStateException("no answer to " + name, error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while waiting for " + name, error);
    }
  }
}
