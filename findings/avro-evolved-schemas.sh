#!/bin/bash
# Run: records in Avro, read with a newer schema that Avro's own check (SchemaCompatibility, which registries use) calls COMPATIBLE, by
# Spark's from_avro (PySpark 4.2.0 with spark-avro 4.2.0), Avro 1.12.2 for Java and for Python, fastavro 1.13.1 and, in Go,
# hamba/avro 2.31.0. Needs a JDK and Go.
#
# Seen: 1. A time changes from timestamp-millis to timestamp-micros, or a decimal's scale from 2 to 3. Spark, Java and Go read old
#          records by the new unit: 30 November 2026 becomes 21 January 1970, and 1.25 becomes 0.125. Both Pythons read the old value.
#       2. A field is renamed, with its old name as alias and with a default. Avro for Python reads the default, and the others the value.
#       3. A time and a decimal are added with a default. Both Pythons give the bare default, as 0 and '\x01' (fastavro) or b'\x01', beside
#          datetimes and decimals of other records. The others give the time and the decimal.
#
# Surprising, because a registry takes each of the changes at any level of compatibility, no reader raises an error, and the same bytes
# have two values in one company. Aliases are in the specification for exactly such a change, and the library is Avro's own.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.2.0 pyarrow==26.0.1 fastavro==1.13.1 avro==1.12.2
jars_of avro org.apache.avro:avro:1.12.2
jars_of spark org.apache.spark:spark-avro_2.13:4.2.0
cat >write.py <<'PYTHON'
import datetime
import decimal
import io
import json

import fastavro


def record(*fields):
    return {"type": "record", "name": "R", "fields": list(fields)}


def time(unit):
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def number(scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}


AT = datetime.datetime(2026, 11, 30, tzinfo=datetime.timezone.utc)
OLD = record({"name": "v", "type": "int"})
CASES = {
    "unit": (record({"name": "v", "type": time("millis")}), AT, record({"name": "v", "type": time("micros")})),
    "scale": (record({"name": "v", "type": number(2)}), decimal.Decimal("1.25"), record({"name": "v", "type": number(3)})),
    "alias": (OLD, 7, record({"name": "n", "type": "int", "aliases": ["v"], "default": 0})),
    "new time": (OLD, 7, record({"name": "n", "type": time("millis"), "default": 0})),
    "new decimal": (OLD, 7, record({"name": "n", "type": number(2), "default": "\u0001"})),
}
with open("cases", "w", encoding="utf-8") as cases:
    for name, (written, value, read) in CASES.items():
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(written))), {"v": value})
        cases.write("\t".join([name, json.dumps(written), json.dumps(read), data.getvalue().hex()]) + "\n")
PYTHON
cat >Read.java <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

public class Read {
    public static void main(String[] none) throws Exception {
        var data = new GenericData();
        data.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        data.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        data.addLogicalTypeConversion(new Conversions.DecimalConversion());
        for (var line : Files.readAllLines(Path.of("cases"))) {
            var parts = line.split("\t");
            var written = new Schema.Parser().parse(parts[1]);
            var read = new Schema.Parser().parse(parts[2]);
            var compatible = SchemaCompatibility.checkReaderWriterCompatibility(read, written).getType();
            var decoder = DecoderFactory.get().binaryDecoder(HexFormat.of().parseHex(parts[3]), null);
            var row = new GenericDatumReader<GenericRecord>(written, read, data).read(null, decoder);
            System.out.println(parts[0] + "\t" + compatible + " " + row.get(0));
        }
    }
}
JAVA
cat >main.go <<'GO'
package main

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
)

func main() {
	lines, _ := os.ReadFile("cases")
	for _, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		parts := strings.Split(line, "\t")
		schema, err := avro.NewSchemaCompatibility().Resolve(avro.MustParse(parts[2]), avro.MustParse(parts[1]))
		if err != nil {
			panic(err)
		}
		data, _ := hex.DecodeString(parts[3])
		var row map[string]any
		if err := avro.Unmarshal(schema, data, &row); err != nil {
			panic(err)
		}
		for _, value := range row {
			switch value := value.(type) {
			case time.Time:
				fmt.Printf("%s\t%s\n", parts[0], value.UTC().Format("2006-01-02T15:04:05.000Z"))
			case *big.Rat:
				fmt.Printf("%s\t%s\n", parts[0], value.FloatString(3))
			default:
				fmt.Printf("%s\t%v\n", parts[0], value)
			}
		}
	}
}
GO
cat >go.mod <<'GO'
module finding

go 1.26

require github.com/hamba/avro/v2 v2.31.0
GO
go mod tidy >go.log 2>&1
cat >read.py <<'PYTHON'
import datetime
import decimal
import glob
import io
import json
import os
import subprocess
import warnings

import avro.io
import avro.schema
import fastavro
from pyspark.sql.avro.functions import from_avro
from seen import see
from spark_session import session

warnings.simplefilter("ignore")
with open("cases", encoding="utf-8") as lines:
    CASES = [line.rstrip("\n").split("\t") for line in lines]


def by_avro(written, read, data):
    reader = avro.io.DatumReader(avro.schema.parse(written), avro.schema.parse(read))
    return reader.read(avro.io.BinaryDecoder(io.BytesIO(data)))


def by_fastavro(written, read, data):
    return fastavro.schemaless_reader(io.BytesIO(data), *map(fastavro.parse_schema, (json.loads(written), json.loads(read))))


def by_spark(written, read, data):
    rows = spark.createDataFrame([(bytearray(data),)], "data binary").select(from_avro("data", written, {"avroSchema": read}).alias("row"))
    return rows.selectExpr(f"string(row.{json.loads(read)['fields'][0]['name']}) AS value").collect()[0].asDict()


def values(read):
    return {name: next(iter(read(written, newer, bytes.fromhex(data)).values())) for name, written, newer, data in CASES}


def lines_of(*command):
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return dict(line.split("\t") for line in lines)


jars = ",".join(each for name in ("avro", "spark-avro") for each in glob.glob(f"{os.getcwd()}/spark/jars/{name}*.jar"))
spark = session("local[1]", {"spark.jars": jars, "spark.sql.session.timeZone": "UTC"})
java = lines_of("java", "-XX:TieredStopAtLevel=1", "-cp", "avro/jars/*", "Read.java")
verdicts = {name: text.split()[0] for name, text in java.items()}
see("is the newer schema compatible", set(verdicts.values()), {"COMPATIBLE"})
at = datetime.datetime(2026, 11, 30, tzinfo=datetime.timezone.utc)
early = "1970-01-21T18:53:16.800Z"
readers = {
    "Spark": (values(by_spark), "1970-01-21 18:53:16.8", "0.125", "7", "1970-01-01 00:00:00", "0.01"),
    "Java": ({name: text.split()[1] for name, text in java.items()}, early, "0.125", "7", "1970-01-01T00:00:00Z", "0.01"),
    "Go": (lines_of("go", "run", "."), early, "0.125", "7", "1970-01-01T00:00:00.000Z", "0.010"),
    "fastavro": (values(by_fastavro), at, decimal.Decimal("1.25"), 7, 0, "\x01"),
    "Avro for Python": (values(by_avro), at, decimal.Decimal("1.25"), 0, 0, b"\x01"),
}
names = {
    "unit": "1. 30 November 2026, from milliseconds to microseconds",
    "scale": "   1.25, from scale 2 to 3",
    "alias": "2. 7 in a renamed field, whose default is 0",
    "new time": "3. the default of a new time, 0 ms",
    "new decimal": "   the default of a new decimal, 0.01",
}
for place, (name, text) in enumerate(names.items()):
    for reader, (seen, *stated) in readers.items():
        see(f"{text}, {reader}", seen[name], stated[place])
PYTHON
quietly python write.py
quietly python read.py
