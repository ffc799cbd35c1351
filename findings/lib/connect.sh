# Sourced by the scripts of findings/ with Kafka Connect, after common.sh and apache_kafka: a connector that counts, and workers of
# Connect 4.4.0, which have exactly.once.source.support=enabled if nothing else is said. Needs a JDK.
mkdir plugins classes
jars_of connect org.apache.kafka:connect-runtime:4.4.0
cat >Count.java <<'JAVA'
package count;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Writes a number to its topic, twice a second, and goes on from its offset. The number `large`, if set, takes 2,000 digits. */
public class Count extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(settings);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counter.class;
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public void stop() {}

    @Override
    public String version() {
        return "1";
    }

    public static class Counter extends SourceTask {
        private String topic;
        private Map<String, String> from;
        private long large;
        private long next;

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            large = Long.parseLong(settings.getOrDefault("large", "0"));
            from = Map.of("topic", topic);
            var offset = context.offsetStorageReader().offset(from);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(500);
            next++;
            var value = next == large ? "0".repeat(2000) : "" + next;
            return List.of(new SourceRecord(from, Map.of("next", next), topic, Schema.STRING_SCHEMA, value));
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
JAVA
javac -cp 'connect/jars/*' -d classes Count.java
jar --create --file plugins/count.jar -C classes count

# worker GROUP PORT [SETTING=VALUE ...]: start a worker of a cluster of its own.
worker() {
    cat >"$1.properties" <<SETTINGS
bootstrap.servers=$BOOTSTRAP
group.id=$1
listeners=http://127.0.0.1:$2
plugin.path=$folder/plugins
plugin.discovery=only_scan
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
$(for of in offset config status; do echo "$of.storage.topic=$1.$of" && echo "$of.storage.replication.factor=1"; done)
$(printf '%s\n' "${@:3}")
SETTINGS
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "connect/jars/*" \
        org.apache.kafka.connect.cli.ConnectDistributed "$1.properties" >"$1.log" 2>&1 &
    nodes+=($!)
}
