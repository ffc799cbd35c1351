"""The calls of Kafka's command-line tools that users type, and what of their output differs in each run.

Each line of kafka-tool-calls.txt is a class of Kafka's tools with its arguments. `$SERVER` is the broker's address,
`$DIR` the folder with `FILES`, and `$TOKEN` the HMAC of the token that was created last. Calls run in this order, since
later ones find what earlier ones made. `<<` is followed by the standard input.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Tools whose output consists of measurements and times, so only their status is compared.
MEASURING = frozenset(
    {"ConsumerPerformance", "EndToEndLatency", "ProducerPerformance", "VerifiableConsumer", "VerifiableProducer"}
)
# Tools that take the address before the word for what they do, and tools whose calls name it themselves.
_ADDRESS_FIRST = frozenset({"FeatureCommand", "MetadataQuorumCommand", "TransactionsCommand"})
_OWN_ADDRESS = frozenset({"EndToEndLatency", "ReplicaVerificationTool", "VerifiableConsumer", "VerifiableProducer"})

FILES = {
    "topics.json": json.dumps({"version": 1, "topics": [{"topic": "orders"}, {"topic": "events"}]}),
    "reassign.json": json.dumps(
        {
            "version": 1,
            "partitions": [
                {"topic": "orders", "partition": index, "replicas": [1], "log_dirs": ["any"]} for index in range(3)
            ],
        }
    ),
    "unknown-broker.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [9]}]}
    ),
    "elections.json": json.dumps({"partitions": [{"topic": "orders", "partition": 0}]}),
    "delete.json": json.dumps({"version": 1, "partitions": [{"topic": "events", "partition": 0, "offset": 2}]}),
    "client.properties": "request.timeout.ms=20000\n",
    "alice.properties": (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="user1"'
        ' password="secret";\n'
    ),
    "offsets.csv": "orders,0,1\n",
}

_CALLS = Path(__file__).with_name("kafka-tool-calls.txt")


_OVERRIDE = "Kafka's cluster-wide min.insync.replicas counts as an override"
_STREAMS = "streams groups are not supported"
# The calls whose output differs, each with the reason.
DIFFERENCES: dict[str, str] = {
    "BrokerApiVersionsCommand": "not all APIs of Kafka are served",
    "ConfigCommand --entity-type topics --describe": _OVERRIDE,
    "ConfigCommand --group readers --describe --all": "consumer groups are assigned at once by default",
    "StreamsGroupCommand --describe --group missing": _STREAMS,
    "StreamsGroupCommand --reset-offsets --group missing --all-input-topics --to-earliest --dry-run": _STREAMS,
    "TopicCommand --describe --topics-with-overrides": _OVERRIDE,
}


class Call(NamedTuple):
    """One call: its text in the list, the tool, its arguments and its standard input."""

    text: str
    tool: str
    arguments: tuple[str, ...]
    lines: str


_PACKAGES = {
    "ConfigCommand": "kafka.admin.",
    "ConsoleConsumer": "consumer.",
    "ConsoleShareConsumer": "consumer.",
    "ConsumerGroupCommand": "consumer.group.",
    "ShareGroupCommand": "consumer.group.",
    "StreamsGroupCommand": "streams.",
}


def calls(server: str, sasl_server: str, folder: str) -> Iterator[Call]:
    """Yield the calls; those with the settings of a user go to the listener with authentication."""
    for line in _CALLS.read_text(encoding="utf-8").splitlines():
        command, _, lines = line.partition(" << ")
        tool, *words = command.split(" ")
        if tool not in _OWN_ADDRESS:
            address = ["--bootstrap-server", sasl_server if "$DIR/alice.properties" in words else server]
            words = address + words if tool in _ADDRESS_FIRST else words + address
        arguments = tuple(word.replace("$DIR", folder).replace("$SERVER", server) for word in words)
        yield Call(command, _PACKAGES.get(tool, "") + tool, arguments, lines.encode().decode("unicode_escape"))


_VARYING = (
    (r"(console|perf)-consumer-\d+", "GROUP"),
    (r"[A-Za-z0-9+/]{86}==", "HMAC"),
    (r"(tokenId : |^)[A-Za-z0-9_-]{22}(?![\w-])", "ID"),
    # Addresses, ids, folders, times and durations.
    (r"127\.0\.0\.1(:\d+)?", "HOST"),
    (r'"directoryId": "[^"]+"', "DIRECTORY"),
    (r"(TopicId|Cluster ?I[dD]): +\S+", r"\1: ID"),
    (r"(Cluster ID|cluster id) *:? *\S+", r"\1 ID"),
    (r'"logDir":"[^"]+"', "LOGDIR"),
    (r"/\S*/(data|memory)\b|/memory", "LOGDIR"),
    (r"\b1[78]\d{11}\b", "TIME"),
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d[:.,]\d+)?", "TIME"),
    (r"\d+\.\d+", "NUMBER"),
    (r"HOST +\d{4,5}\b", "HOST PORT"),
    # The time from one record of a batch to the next takes one byte or two.
    (r'"size":[1-9]\d*', '"size":BYTES'),
    # What the metadata consists of, the name of the controller's listener, and the first producer id.
    (r"HighWatermark: +\d+", "HighWatermark"),
    (r"\bEpoch: \d+", "Epoch"),
    (r"^(\d+\s+)[A-Za-z0-9_-]{22}\s+\d+", r"\1 ID"),
    (r'"endpoints": \["\w+://', '"endpoints": ["'),
    (r"^\d+(\s+\d+\s+-1\s+\d+\s+TIME\s+None)", r"ID\1"),
    # Kafka with eligible leader replicas records it for the cluster, and so shows it for every topic.
    (r"min\.insync\.replicas=1,?", ""),
)


def normalized(output: str) -> list[str]:
    """Return the lines without what differs in each run, in the order of the alphabet: many come from hash tables."""
    for pattern, replacement in _VARYING:
        output = re.sub(pattern, replacement, output, flags=re.MULTILINE)
    return sorted(re.sub(r"\s+", " ", line).strip() for line in output.splitlines() if line.strip())
