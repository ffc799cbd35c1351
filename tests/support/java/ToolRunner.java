import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's command-line tools, one after another, in one JVM.
 *
 * Each line of standard input is a JSON object with the class, the arguments, the standard input and the deadline of one
 * call. Each line of standard output is one with its exit status and its outputs.
 */
public class ToolRunner {
    private static class Exited extends Error {
        Exited() {
            super("the tool exited", null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setShutdownHookAdder((name, hook) -> { });
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            answers.println(mapper.writeValueAsString(run(mapper, mapper.readTree(line))));
            answers.flush();
        }
        // Threads that a tool has left behind must not keep the JVM alive.
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(ObjectMapper mapper, JsonNode call) throws Exception {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(output, true, "UTF-8"));
        System.setErr(new PrintStream(errors, true, "UTF-8"));
        System.setIn(new ByteArrayInputStream(call.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        List<String> words = new ArrayList<>();
        call.get("arguments").forEach(word -> words.add(word.asText()));
        // The first exit counts: a tool may catch the error that ends it, and exit again.
        AtomicReference<Integer> status = new AtomicReference<>();
        Exit.Procedure exit = (code, message) -> {
            status.compareAndSet(null, code);
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> {
            try {
                Class.forName(call.get("tool").asText()).getMethod("main", String[].class)
                    .invoke(null, (Object) words.toArray(new String[0]));
            } catch (Throwable failure) {
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                if (!(cause instanceof Exited) && status.compareAndSet(null, 1)) {
                    cause.printStackTrace();
                }
            }
        }, "tool");
        thread.setDaemon(true);
        thread.start();
        thread.join(call.get("deadline_ms").asLong());
        if (thread.isAlive()) {
            thread.interrupt();
            status.set(-1);
        }
        return mapper.createObjectNode()
            .put("status", status.get() == null ? 0 : status.get())
            .put("output", output.toString(StandardCharsets.UTF_8))
            .put("errors", errors.toString(StandardCharsets.UTF_8));
    }
}
