import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Prints, for each line `key=value` of a broker's settings, the message with which Kafka refuses the value, or nothing. */
public class SettingMessages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("=", 2);
            System.out.println(message(AbstractKafkaConfig.CONFIG_DEF.configKeys().get(parts[0]), parts[1]));
        }
    }

    private static String message(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return "";
        } catch (ConfigException refused) {
            return refused.getMessage();
        }
    }
}
