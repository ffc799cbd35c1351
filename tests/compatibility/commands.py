"""The trial of `eos-kafka transactions` on one broker: list, describe, find, abort, terminate.

An open transaction comes from librdkafka. A hanging one comes from a late write while the broker does not verify
transactions, as brokers before Kafka 3.6 do not. librdkafka's consumer reads what was behind them.
"""

import json
import shlex

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from spark_eos.admin.output import ExitCode
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, make_topic, make_transactional_producer, send, unique, values_soon
from tests.support.hanging import hang
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.transactions_command import Ran, ours, rows
from tests.support.waiting import wait_until

VERIFICATION = "transaction.partition.verification.enable"
NODE = "1"
OLD_MS = 20 * 60_000
DEADLINE_S = 60
# Options of `list` that need a newer broker, with the version that serves them (KIP-994, KIP-1152).
NEWER_OPTIONS = {"--duration-filter": ((3, 8), "0"), "--transactional-id-pattern": ((4, 1), ".*")}


class Commands:
    """The commands against one node of Apache Kafka, on which a sink has written a topic."""

    def __init__(self, kafka: Kafka, version: str) -> None:
        self._kafka = kafka
        self._version = tuple(map(int, version.split(".")[:2]))

    def run(self, written: str) -> str:
        """Run all of them; return what was seen. `written` is a topic of the sink."""
        self._views(written)
        self._live()
        self._hanging()
        missing = self._newer_options()
        return "all" + (f", without {' and '.join(missing)}" if missing else "")

    def _ran(self, *words: str, code: int = ExitCode.DONE) -> Ran:
        ran = ours(self._kafka.bootstrap_servers, *words)
        assert ran.code == code, f"{shlex.join(words)}: exit code {ran.code}: {ran.output}{ran.errors}"
        return ran

    def _views(self, written: str) -> None:
        listed = rows(self._ran("list").output)
        assert listed, "list has no transactional id of the sink"
        for each in listed[:3]:
            [described] = rows(self._ran("describe", "--transactional-id", each["TransactionalId"]).output)
            assert described["ProducerId"] == each["ProducerId"], (described, each)
        assert "does not exist" in self._ran("describe", "--transactional-id", "unknown", code=ExitCode.FAILED).errors
        known = {each["ProducerId"] for each in listed}
        producers = rows(self._ran("describe-producers", "--topic", written, "--partition", "0").output)
        assert known & {each["ProducerId"] for each in producers}, (known, producers)

    def _live(self) -> None:
        """An open transaction is refused by `abort` and ended by `force-terminate`."""
        topic, name = make_topic(self._kafka), unique("live")
        producer = make_transactional_producer(self._kafka, name)
        producer.begin_transaction()
        send(producer, topic, [b"open"])
        send(make_producer(self._kafka), topic, [b"behind"])
        [described] = rows(self._ran("describe", "--transactional-id", name).output)
        assert described["TransactionState"] == "Ongoing", described
        place = ("--topic", topic, "--partition", "0")
        explained = self._ran("find-hanging", *place, "--max-transaction-timeout", "-1", "--explain").errors
        assert "0 hanging transactions, 1 other open" in explained, explained
        assert name in self._ran("abort", *place, "--start-offset", "0", code=ExitCode.NOTHING_DONE).errors
        self._ran("force-terminate", "--transactional-id", name, "--yes")
        values_soon(self._kafka, topic, [b"behind"])

    def _hanging(self) -> None:
        """A hanging transaction is found, and the command that is printed ends it."""
        topic = make_topic(self._kafka)
        self._verify(False)
        with RawClient(self._kafka.bootstrap_servers) as client:
            identity = hang(RawSession(client, unique("late")), topic, age_ms=OLD_MS)
        self._verify(True)
        send(make_producer(self._kafka), topic, [b"behind"])
        values_soon(self._kafka, topic, [b"in time"])
        found = self._ran("find-hanging", "--topic", topic, "--output", "json", code=ExitCode.HANGING_FOUND)
        [hanging] = json.loads(found.output)
        assert hanging["hanging"] and str(identity.producer_id) in found.output, found
        _, _, _, _, *words = shlex.split(hanging["command"])
        self._ran(*words, "--yes")
        values_soon(self._kafka, topic, [b"in time", b"behind"])
        self._ran("find-hanging", "--topic", topic)

    def _newer_options(self) -> list[str]:
        """Return the options that the broker is too old for; the error names the version that has them."""
        missing = []
        for option, (first, value) in NEWER_OPTIONS.items():
            if self._version >= first:
                assert rows(self._ran("list", option, value).output)
                continue
            errors = self._ran("list", option, value, code=ExitCode.FAILED).errors
            assert ".".join(map(str, first)) in errors, errors
            missing.append(f"`list {option}`")
        return missing

    def _verify(self, is_on: bool) -> None:
        """Switch the verification of transactions on or off, while the node runs."""
        wanted = str(is_on).lower()
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
        entry = ConfigEntry(VERIFICATION, wanted, incremental_operation=AlterConfigOpType.SET)
        node = ConfigResource(ConfigResource.Type.BROKER, NODE, incremental_configs=[entry])
        for changed in admin.incremental_alter_configs([node]).values():
            changed.result(DEADLINE_S)

        def is_in_effect() -> bool:
            asked = ConfigResource(ConfigResource.Type.BROKER, NODE)
            [described] = admin.describe_configs([asked]).values()
            return bool(described.result(DEADLINE_S)[VERIFICATION].value == wanted)

        wait_until(is_in_effect, f"{VERIFICATION}={wanted}", deadline_s=DEADLINE_S)
