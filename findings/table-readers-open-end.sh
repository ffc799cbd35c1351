#!/bin/bash
# Run: daft.read_kafka of Daft 0.7.26 and ray.data.read_kafka of Ray 2.60.0 on Apache Kafka 4.4.0 (one node), with confluent-kafka
# 2.16.1 and a timeout of 15 s. The topics: plain records; the same records in transactions; and once more in transactions, of
# which one between them is still open.
#
# Seen: 1. Plain records are read to the end.
#       2. In transactions the end is never reached: it is behind the last marker, which is no record. Each read lasts until its
#          timeout, and warns in its log that it ends early (Ray's default has no timeout). No row is missing.
#       3. Behind the open transaction rows are missing. The warning is the same, and no error is raised: a table of fewer rows
#          is the result.
#
# Surprising, because both promise a bounded read up to the latest offset, and because aborted rows are hidden as one wishes.
# The one sign that rows are missing is there for each topic of transactions.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 daft==0.7.26 "ray[data]==2.60.0"
apache_kafka 4.4.0
cat >read_topic.py <<'PYTHON'
import os
import sys

reader, topic = sys.argv[1:]
if reader == "daft":
    import daft

    table = daft.read_kafka(os.environ["BOOTSTRAP"], topic, timeout_ms=15_000).to_pydict()
    values = table["value"]
else:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20)
    dataset = ray.data.read_kafka(topic, bootstrap_servers=os.environ["BOOTSTRAP"], timeout_ms=15_000)
    values = [row["value"] for row in dataset.take_all()]
print("ROWS", *(value.decode() for value in values))
PYTHON
cat >drive.py <<'PYTHON'
import os
import re
import subprocess
import sys

from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, high, stable, transactional
from seen import see, wait_for


def write(producer, topic, value):
    producer.produce(topic, value)
    producer.flush()


def commit(producer, topic, *values):
    producer.begin_transaction()
    for value in values:
        write(producer, topic, value)
    producer.commit_transaction()


for topic in ("plain", "transactions", "open"):
    create(topic)
for value in ("a", "b", "c"):
    write(Producer({"bootstrap.servers": BOOTSTRAP}), "plain", value)
settings = {"bootstrap.servers": BOOTSTRAP, "transactional.id": "left open", "transaction.timeout.ms": 900_000}
left_open = Producer(settings)
left_open.init_transactions(60)
for topic in ("transactions", "open"):
    producer = transactional(topic)
    commit(producer, topic, "a", "b")
    if topic == "open":
        left_open.begin_transaction()
        write(left_open, topic, "x")
    commit(producer, topic, "c")
see("last stable offsets", wait_for(lambda: [stable(topic) for topic in ("transactions", "open")] == [5, 3]), True)
see("high watermarks", wait_for(lambda: [high(topic) for topic in ("transactions", "open")] == [5, 6]), True)
for number, (topic, rows, warns) in enumerate((("plain", "a b c", False), ("transactions", "a b c", True), ("open", "a b", True)), 1):
    for reader in ("daft", "ray"):
        run = subprocess.run(
            [sys.executable, "read_topic.py", reader, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, "RAY_DEDUP_LOGS": "0"},
        )
        found = re.findall("^ROWS (.*)$", run.stdout, re.MULTILINE)
        if run.returncode or not found:
            raise SystemExit(run.stdout)
        see(f"{number}. {topic}: {reader} reads", found[0], rows)
        warned = bool(re.search("was not reached|terminating task early", run.stdout))
        see("   and warns that it ends early", warned, warns)
left_open.abort_transaction()
PYTHON
quietly python drive.py
