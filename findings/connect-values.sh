#!/bin/bash
# Run: JsonConverter, Cast and TimestampConverter of Kafka Connect 4.4.0, on values alone: no worker, no node. Needs a JDK of 17 or newer.
#
# Seen: 1. JsonConverter, schemas.enable=false: 18446744073709551615 is read as -1, and a number of 30 digits as a negative one. What a
#          sink gets is wrong, and so is JSON that is read and written again.
#       2. The same with a schema: 3000000000 of type int32 is -1294967296, a number as text of type int64 is 0, and "true" as text of
#          type boolean is false.
#       3. Cast: the number 3000000000 to int32 is -1294967296 as well, and 300 to int8 is 44. The text 3000000000 is refused.
#       4. TimestampConverter, a format with SSS: a time with microseconds is two minutes late, one with nanoseconds more than a day, and
#          a tenth of a second is 5 ms. Month 13 is the next year's first one. What comes behind the format, such as a zone, is ignored.
#       5. The same, a time to text by SSSSSS: 123 milliseconds become .000123.
#
# Surprising, because Connect refuses a record that does not fit its schema, errors.tolerance and dead letters are made for that, and
# Cast's own check of a range is in its way from text. No error, no dead letter: the values look like values.
. "$(dirname "$0")/lib/common.sh"
jars_of connect org.apache.kafka:connect-transforms:4.4.0 org.apache.kafka:connect-json:4.4.0
cat >Values.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Cast;
import org.apache.kafka.connect.transforms.TimestampConverter;
import org.apache.kafka.connect.transforms.Transformation;

public class Values {
    static final String TO_MILLIS = "yyyy-MM-dd'T'HH:mm:ss.SSS";

    /** Print what was seen, and end the program with status 1 if it is not what is stated. */
    static void see(String what, Object seen, String stated) {
        System.out.println(what + ": " + seen);
        if (!seen.toString().equals(stated)) {
            System.out.println("DIFFERENT: " + what + "\n  stated: " + stated + "\n  seen:   " + seen);
            System.exit(1);
        }
    }

    /** Return what JsonConverter reads, and what it writes of that. */
    static String json(String text) {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        var read = converter.toConnectData("topic", text.getBytes());
        return read.value() + " " + new String(converter.fromConnectData("topic", read.schema(), read.value()));
    }

    static Object typed(String type, String text) {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        var document = "{\"schema\": {\"type\": \"" + type + "\"}, \"payload\": " + text + "}";
        return converter.toConnectData("topic", document.getBytes()).value();
    }

    static Object field(Transformation<SourceRecord> transformation, Map<String, ?> settings, Object value) {
        try (transformation) {
            transformation.configure(settings);
            var record = new SourceRecord(Map.of(), Map.of(), "topic", null, Map.of("f", value));
            return ((Map<?, ?>) transformation.apply(record).value()).get("f");
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    static Object cast(String type, Object value) {
        return field(new Cast.Value<>(), Map.of("spec", "f:" + type), value);
    }

    static String time(String format, String text) {
        var settings = Map.of("field", "f", "target.type", "Timestamp", "format", format);
        return ((java.util.Date) field(new TimestampConverter.Value<>(), settings, text)).toInstant().toString();
    }

    public static void main(String[] arguments) {
        see("1. JSON 18446744073709551615, read and written", json("18446744073709551615"), "-1 -1");
        see("   9223372036854775808", json("9223372036854775808"), "-9223372036854775808 -9223372036854775808");
        see("   30 digits", json("123456789012345678901234567890"), "-4362896299872285998 -4362896299872285998");
        see("2. int32 of 3000000000", typed("int32", "3000000000"), "-1294967296");
        see("   int8 of 300", typed("int8", "300"), "44");
        see("   int64 of \"12\"", typed("int64", "\"12\""), "0");
        see("   boolean of \"true\"", typed("boolean", "\"true\""), "false");
        see("3. Cast of 3000000000 to int32", cast("int32", 3000000000L), "-1294967296");
        see("   of 300 to int8", cast("int8", 300L), "44");
        see("   of the text 3000000000 to int32", cast("int32", "3000000000"), "DataException");
        see("4. a time with microseconds", time(TO_MILLIS + "XXX", "2026-11-30T12:00:00.123456Z"), "2026-11-30T12:02:03.456Z");
        see("   with nanoseconds", time(TO_MILLIS + "XXX", "2026-11-30T12:00:00.123456789Z"), "2026-12-01T22:17:36.789Z");
        see("   with a tenth of a second", time(TO_MILLIS + "XXX", "2026-11-30T12:00:00.5Z"), "2026-11-30T12:00:00.005Z");
        see("   with milliseconds", time(TO_MILLIS + "XXX", "2026-11-30T12:00:00.123Z"), "2026-11-30T12:00:00.123Z");
        see("   with a zone that the format lacks", time(TO_MILLIS, "2026-11-30T12:00:00.123+05:00"), "2026-11-30T12:00:00.123Z");
        see("   of month 13", time("yyyy-MM-dd", "2026-13-01"), "2027-01-01T00:00:00Z");
        var settings = Map.of("field", "f", "target.type", "string", "format", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS");
        var text = field(new TimestampConverter.Value<>(), settings, new java.util.Date(1796040000123L));
        see("5. a time to text by SSSSSS", text, "2026-11-30T12:00:00.000123");
    }
}
JAVA
quietly java -XX:TieredStopAtLevel=1 -cp 'connect/jars/*' Values.java
