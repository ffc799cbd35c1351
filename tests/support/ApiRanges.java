import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Prints the APIs of a broker with their stable versions, its features, and the levels of metadata.version that changed
 * the metadata, by the jars of one version of Kafka.
 */
public class ApiRanges {
    private static final Pattern FEATURE = Pattern.compile("([a-z.]+) -> SupportedVersionRange\\[min_version:(\\d+), max_version:(\\d+)");

    public static void main(String[] arguments) throws Exception {
        Class<?> keys = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
        Class<?> listeners = Class.forName("org.apache.kafka.common.message.ApiMessageType$ListenerType");
        Object broker = listeners.getField("BROKER").get(null);
        Collection<?> apis = (Collection<?>) keys.getMethod("apisForListener", listeners).invoke(null, broker);
        Map<Integer, String> ranges = new TreeMap<>();
        for (Object key : apis) {
            Optional<?> found = (Optional<?>) keys.getMethod("toApiVersion", boolean.class).invoke(key, false);
            if (found.isPresent()) {
                int id = keys.getField("id").getShort(key);
                Object range = found.get();
                Object low = range.getClass().getMethod("minVersion").invoke(range);
                Object high = range.getClass().getMethod("maxVersion").invoke(range);
                ranges.put(id, "\"" + id + "\": [" + low + ", " + high + "]");
            }
        }
        TreeSet<String> features = new TreeSet<>();
        Matcher feature = FEATURE.matcher(String.valueOf(supportedFeatures()));
        while (feature.find()) {
            features.add("\"" + feature.group(1) + "\": [" + feature.group(2) + ", " + feature.group(3) + "]");
        }
        System.out.println("{\"apis\": {" + String.join(", ", ranges.values()) + "}, \"features\": {" + String.join(", ", features)
            + "}, \"metadata_changes\": " + metadataChanges() + "}");
    }

    private static TreeSet<Short> metadataChanges() throws Exception {
        TreeSet<Short> changes = new TreeSet<>();
        Class<?> levels = Class.forName("org.apache.kafka.server.common.MetadataVersion");
        for (Object level : levels.getEnumConstants()) {
            if ((boolean) levels.getMethod("didMetadataChange").invoke(level)) {
                changes.add((Short) levels.getMethod("featureLevel").invoke(level));
            }
        }
        return changes;
    }

    private static Object supportedFeatures() throws Exception {
        for (String name : new String[] {"org.apache.kafka.server.BrokerFeatures", "kafka.server.BrokerFeatures"}) {
            try {
                for (Method method : Class.forName(name).getMethods()) {
                    if (method.getName().equals("defaultSupportedFeatures")) {
                        return method.getParameterCount() == 0 ? method.invoke(null) : method.invoke(null, false);
                    }
                }
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new IllegalStateException("no BrokerFeatures");
    }
}
