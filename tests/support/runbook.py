"""The situations of `docs/operations/`, staged on an embedded broker, and the output of the commands in the pages.

`python -m tests.support.runbook` runs every command again and rewrites each block below a comment
`<!-- output: NAME -->`. Run it when messages of `eos-kafka` or of the sink change.
"""

import contextlib
import io
import logging
import re
import shlex
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import broker_core.broker.marker_writer
from broker_core import EmbeddedBroker, ErrorCode, TopicPartition
from broker_core.config import STANDARD_AUTHORIZER
from spark_eos.admin.command import main as eos_kafka
from spark_eos.client import transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction, sink_options
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.decision_errors import lost_error
from spark_eos.sink.protocol.state import QueryRun
from spark_eos.source.lso_stalls import LsoStallWarnings
from spark_eos.transactions.standstills import Standstill
from tests.support.clocks import StandingClock, runtime_by
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.spark_eos.driving import LogOn, settle
from tests.support.spark_eos.prepared_tasks import prepare
from tests.support.waiting import wait_until

PAGES: Final = Path(__file__).parents[2] / "docs"
SHOWN_ADDRESS: Final = "localhost:9092"
QUERY: Final = "6f1c2d34-9b1e-4c55-8a0e-2f6f0f1f7a01"
PREFIX, DECISIONS, TOPIC = "eos-kafka", "eos-kafka-decisions", "orders"
WIDTH: Final = 80
MINUTE_MS: Final = 60_000
TIMEOUT_MS: Final = 15 * MINUTE_MS
_FEW_PARTITIONS: Final = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}
_UNVERIFYING: Final = {"transaction.partition.verification.enable": "false", "transaction.version": "1"}
_RUNS: Final = ("0b7a91c2-54d0-4f0f-9a55-0d1f6f3a1e10", "d27e4c86-08a3-47a4-8a4f-5a2d7f90b6c3")
_BLOCK: Final = re.compile(
    r"(?P<head><!-- output: (?P<name>[\w-]+) -->\n```(?:console|text)\n)(?P<text>(?:(?!```).*\n)*)```\n"
)


@dataclass
class Terminal:
    """Commands with their output, as a page shows them."""

    address: str
    folder: Path
    shown: str = ""

    def run(self, words: str, *, exit_code: bool = False) -> int:
        """Run `eos-kafka` and record its output."""
        area, _, rest = words.partition(" ")
        reach = f"--bootstrap-server {self.address}"
        given = f"{area} {reach} {rest}" if area == "transactions" else f"{words} {reach}"
        stream = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
            _logs_of_a_command(),
        ):
            code = eos_kafka(shlex.split(given))
        self.show(f"$ eos-kafka {given}\n{stream.getvalue()}" + (f"$ echo $?\n{code}\n" if exit_code else ""))
        return code

    def show(self, text: str) -> None:
        """Record a text."""
        text = text.replace(self.address, SHOWN_ADDRESS).replace("\t", "  ")
        self.shown += "\n".join(_wrapped(line.rstrip()) for line in text.rstrip().splitlines()) + "\n"

    def take(self) -> str:
        """Return what was recorded, and start over."""
        shown, self.shown = self.shown.rstrip("\n"), ""
        return shown


def _wrapped(line: str) -> str:
    """Break a long line as a terminal does; tables, JSON and commands to be copied stay as they are."""
    words = line.lstrip()
    if len(line) <= WIDTH or words.startswith(('"', "to end it:")) or "  " in words:
        return line
    if words.startswith("$ "):
        return _wrapped_command(words)
    indent = " " * (len(line) - len(words))
    further = f"{indent}  " if words.startswith("- ") else indent
    return textwrap.fill(
        words, WIDTH, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def _wrapped_command(line: str) -> str:
    groups: list[str] = []
    for word in map(shlex.quote, shlex.split(line.removeprefix("$ "))):
        # An option stays with its value.
        if groups and groups[-1].startswith("--") and " " not in groups[-1] and not word.startswith("--"):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    lines = ["$"]
    for group in groups:
        if len(lines[-1]) + 1 + len(group) > WIDTH - 2:
            lines.append("   ")
        lines[-1] += f" {group}"
    return " \\\n".join(lines)


@contextlib.contextmanager
def _logs_of_a_command() -> Iterator[None]:
    """Log as in a process of the command's own: warnings to standard error, and nothing from the broker."""
    broker = logging.getLogger("broker_core")
    with (
        patch.object(logging.root, "handlers", []),
        patch.object(broker, "handlers", [logging.NullHandler()]),
        patch.object(broker, "propagate", False),
    ):
        yield


class Query:
    """The tasks and drivers of one query with a topic of two partitions, without Spark."""

    def __init__(self, kafka: EmbeddedBroker, client: KafkaClient, name: str = QUERY) -> None:
        self.kafka, self.name = kafka, name
        self.client = client
        self.cluster = KafkaCluster(client, DECISIONS)
        self.log = LogOn(self.cluster, PREFIX, name, DECISIONS)

    def committer(self, run: int) -> Committer:
        """Return the driver of a run."""
        return Committer(self.cluster, QueryRun(self.log.log, PREFIX, self.name, _RUNS[run], OnLostTransaction.FAIL))

    def prepare(self, run: int, micro_batch: int, task: int, rows: int = 500) -> Prepared:
        """Write the rows of one task and leave its transaction open."""
        transaction = prepare(
            self.client,
            TaskId(PREFIX, self.name, _RUNS[run], f"w{task}", 0),
            task,
            TopicPartition(TOPIC, task),
            [f"{micro_batch}-{task}-{row}" for row in range(rows)],
            timeout_ms=TIMEOUT_MS,
            written=[TopicRows(TOPIC, rows, 7919 * (micro_batch + 1) + task)],
        )
        return Prepared(Place(self.name, _RUNS[run], micro_batch, task), transaction)

    def decide(self, *prepared: Prepared) -> Decision:
        """Append a decision and end no transaction, like a driver that is killed at that point."""
        found = tuple(each.transaction for each in prepared)
        now_ms = int(time.time() * 1000)
        first = prepared[0].place
        decision = Decision(PREFIX, self.name, first.run, first.micro_batch, 1, len(found), now_ms, found)
        self.log.decide(decision, self.log.take_over())
        return decision

    def end(self, prepared: Prepared, *, commit: bool) -> None:
        """End one transaction."""
        each = prepared.transaction
        transactions.end_txn(self.client, each.opened, commit=commit)
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        wait_until(lambda: self.kafka.transaction(each.transactional_id).state == wanted, "the transaction has ended")


@contextlib.contextmanager
def staged(settings: Mapping[str, str] | None = None) -> Iterator[tuple[EmbeddedBroker, Terminal]]:
    """Start a broker with the topic of the pages."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(
            topics={TOPIC: 2},
            config={
                "transaction.state.log.num.partitions": "5",
                "offsets.topic.num.partitions": "5",
                **(settings or {}),
            },
            clock="virtual",
        ) as kafka,
    ):
        kafka.create_topic(DECISIONS, 8, {"cleanup.policy": "compact"})
        yield kafka, Terminal(kafka.bootstrap_servers, Path(folder))


@contextlib.contextmanager
def queried(kafka: EmbeddedBroker, name: str = QUERY) -> Iterator[Query]:
    """Start the client of a query."""
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        yield Query(kafka, client, name)


def live() -> Iterator[tuple[str, str]]:
    """A producer that stopped with its transaction open: its coordinator still has it."""
    with staged() as (kafka, terminal), RawClient(kafka.bootstrap_servers) as raw:
        session = RawSession(raw, "payments-7")
        open_up(session, TOPIC, 0)
        terminal.run(f"timeline {TOPIC} --partition 0 --out orders.html")
        yield "live-timeline", terminal.take()
        terminal.run(f"transactions find-hanging --topic {TOPIC} --max-transaction-timeout 0 --explain")
        yield "live-find", terminal.take()
        terminal.run("transactions describe --transactional-id payments-7")
        terminal.run(f"transactions describe-producers --topic {TOPIC} --partition 0")
        yield "live-describe", terminal.take()
        terminal.run(f"transactions abort --topic {TOPIC} --partition 0 --start-offset 0", exit_code=True)
        yield "live-abort-refused", terminal.take()
        terminal.run("transactions force-terminate --transactional-id payments-7", exit_code=True)
        terminal.run("transactions force-terminate --transactional-id payments-7 --yes", exit_code=True)
        yield "live-terminate", terminal.take()
        wait_until(lambda: kafka.partition(TOPIC, 0).open_transactions == (), "the marker is written")
        terminal.run(f"timeline {TOPIC} --partition 0 --out orders.html")
        yield "ended-timeline", terminal.take()


def hanging() -> Iterator[tuple[str, str]]:
    """A write that arrived after its transaction had ended, at a broker that does not verify."""
    with staged(HANGING_SETTINGS) as (kafka, terminal), RawClient(kafka.bootstrap_servers) as raw:
        hang(RawSession(raw, "billing-2"), TOPIC, age_ms=80 * MINUTE_MS)
        with capture_warnings() as warnings:
            stalls = LsoStallWarnings(
                ClientOptions((kafka.bootstrap_servers,)), runtime_by(StandingClock(seconds=75.0)), lambda work: work()
            )
            stalls.report([Standstill(TopicPartition(TOPIC, 0), 2, 3, 0)])
        terminal.show("\n".join(warnings))
        yield "source-warning", terminal.take()
        terminal.run(f"transactions find-hanging --topic {TOPIC}", exit_code=True)
        yield "hanging-find", terminal.take()
        terminal.run(f"transactions find-hanging --topic {TOPIC} --output json")
        yield "hanging-json", terminal.take()
        terminal.run(f"timeline {TOPIC} --partition 0 --out orders.html")
        yield "hanging-timeline", terminal.take()
        terminal.run(f"transactions abort --topic {TOPIC} --partition 0 --start-offset 2", exit_code=True)
        terminal.run(f"transactions abort --topic {TOPIC} --partition 0 --start-offset 2 --yes", exit_code=True)
        terminal.run(f"transactions find-hanging --topic {TOPIC}", exit_code=True)
        yield "hanging-abort", terminal.take()


def lost_marker() -> Iterator[tuple[str, str]]:
    """A commit marker that is missing in one partition, as KAFKA-20734 leaves it."""
    append = broker_core.broker.marker_writer.append_marker

    def lose(broker: object, topic_partition: TopicPartition, *arguments: object, **named: object) -> ErrorCode:
        if topic_partition != TopicPartition(TOPIC, 1):
            return append(broker, topic_partition, *arguments, **named)  # type: ignore[arg-type]
        return ErrorCode.NONE

    with (
        patch.object(broker_core.broker.marker_writer, "append_marker", lose),
        staged() as (kafka, terminal),
        RawClient(kafka.bootstrap_servers) as raw,
    ):
        session = RawSession(raw, "billing-2")
        identity = open_up(session, TOPIC, 0, 1, age_ms=80 * MINUTE_MS)
        session.end(identity, commit=True, version=5)
        wait_until(lambda: kafka.transaction("billing-2").state == "CompleteCommit", "it is committed")
        terminal.run(f"transactions find-hanging --topic {TOPIC}", exit_code=True)
        yield "marker-find", terminal.take()
        where = f"--topic {TOPIC} --partition 1 --start-offset 0"
        terminal.run(f"transactions abort {where}", exit_code=True)
        terminal.run(f"transactions abort {where} --commit --yes", exit_code=True)
        yield "marker-commit", terminal.take()


def offsets() -> Iterator[tuple[str, str]]:
    """Offsets of a group that were written after their transaction had ended."""
    with staged({**HANGING_SETTINGS, "offsets.topic.num.partitions": "1"}) as (kafka, terminal):
        with RawClient(kafka.bootstrap_servers) as raw:
            session = RawSession(raw, "copier-1")
            identity = open_up(session, TOPIC)
            session.end(identity, commit=True, version=4)
            wait_until(lambda: kafka.transaction("copier-1").state == "CompleteCommit", "it is committed")
            session.commit_in_transaction(identity, "copier", TOPIC, 1, version=4)
            terminal.run("transactions find-hanging --topic __consumer_offsets --max-transaction-timeout -1")
        yield "offsets-find", terminal.take()


def decided() -> Iterator[tuple[str, str]]:
    """A driver that was killed between its decision and the end of its transactions; no restart follows."""
    with staged() as (kafka, terminal), queried(kafka) as query:
        query.committer(0).commit([query.prepare(0, 41, task) for task in (0, 1)], 41)
        query.decide(*[query.prepare(0, 42, task) for task in (0, 1)])
        terminal.run("decisions list")
        yield "decisions-list", terminal.take()
        terminal.run(f"decisions show --query {QUERY}")
        yield "decisions-show", terminal.take()
        terminal.run(f"timeline {TOPIC} --partition 0 --out orders.html")
        yield "decided-timeline", terminal.take()
        terminal.run(f"decisions complete --query {QUERY}", exit_code=True)
        yield "complete-plan", terminal.take()
        by = "--yes --by operator@example --reason 'the cluster is retired'"
        terminal.run(f"decisions complete --query {QUERY} {by}", exit_code=True)
        yield "complete", terminal.take()
        terminal.run(f"decisions show --query {QUERY}")
        yield "decisions-audit", terminal.take()
        # Besides the decision, a transaction of the next micro-batch is open.
        query.decide(*[query.prepare(0, 43, task) for task in (0, 1)])
        query.prepare(1, 44, 0)
        terminal.run(f"decisions complete --query {QUERY} --yes", exit_code=True)
        yield "complete-refused", terminal.take()


def taken_back() -> Iterator[tuple[str, str]]:
    """The same, and the operator wants the restart to write the micro-batch again."""
    with staged() as (kafka, terminal), queried(kafka) as query:
        query.decide(*[query.prepare(0, 42, task) for task in (0, 1)])
        terminal.run(f"decisions abort --query {QUERY} --restart rewrite --yes --by operator@example", exit_code=True)
        terminal.run("decisions list")
        yield "abort", terminal.take()


def lost_in_part() -> Iterator[tuple[str, str]]:
    """A decided micro-batch of which one transaction was committed and the other one timed out."""
    with staged() as (kafka, terminal), queried(kafka) as query:
        first, second = (query.prepare(0, 42, task) for task in (0, 1))
        decision = query.decide(first, second)
        query.end(first, commit=True)
        kafka.clock.advance(2 * TIMEOUT_MS / 1000)
        terminal.show(str(lost_error(settle(query.cluster, decision))))
        yield "error-lost", terminal.take()
        terminal.run(f"decisions show --query {QUERY}")
        yield "lost-show", terminal.take()
        terminal.run(f"decisions abort --query {QUERY} --restart rewrite", exit_code=True)
        terminal.run(f"decisions abort --query {QUERY} --restart skip", exit_code=True)
        yield "lost-skip", terminal.take()


def lost_before_any() -> Iterator[tuple[str, str]]:
    """A decided micro-batch of which one transaction timed out, none is committed and one is open."""
    with staged() as (kafka, terminal), queried(kafka) as query:
        first, second = (query.prepare(0, 42, task) for task in (0, 1))
        query.decide(first, second)
        query.end(second, commit=False)
        terminal.run(f"decisions complete --query {QUERY}", exit_code=True)
        yield "complete-rollback", terminal.take()


def stopped() -> Iterator[tuple[str, str]]:
    """Errors with which queries stop."""
    with staged() as (kafka, terminal), queried(kafka) as query:
        prepared = [query.prepare(0, 42, task) for task in (0, 1)]
        kafka.clock.advance(2 * TIMEOUT_MS / 1000)
        yield "error-timed-out", failure(terminal, lambda: query.committer(0).commit(prepared, 42))
    with staged() as (kafka, terminal), queried(kafka) as query:
        query.committer(0).commit([query.prepare(0, 41, task) for task in (0, 1)], 41)
        old = query.committer(0)
        query.committer(1).commit([query.prepare(1, 42, task) for task in (0, 1)], 42)
        mine = [query.prepare(0, 42, task) for task in (0, 1)]
        yield "error-two-drivers", failure(terminal, lambda: old.commit(mine, 42))
        again = [query.prepare(1, 42, task, rows=400) for task in (0, 1)]
        yield "error-other-rows", failure(terminal, lambda: query.committer(1).commit(again, 42))
        older = [query.prepare(1, 41, task) for task in (0, 1)]
        yield "error-rolled-back", failure(terminal, lambda: query.committer(1).commit(older, 41))
    with staged(_UNVERIFYING) as (
        kafka,
        terminal,
    ):
        options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC})
        with KafkaClient(options.client) as client:
            yield "error-unverified", failure(terminal, lambda: check_cluster(client, options))


def job() -> Iterator[tuple[str, str]]:
    """A batch job without a jobId whose driver was killed while it completed it."""
    name = f"job-{uuid.UUID('3f0c6f63-6a39-4b54-a0e7-6a7a0cf0e6b9')}"
    with staged() as (kafka, terminal), queried(kafka, name) as query:
        first, second = (query.prepare(0, 0, task) for task in (0, 1))
        query.decide(first, second)
        query.end(first, commit=True)
        terminal.run("decisions list")
        terminal.run(f"decisions complete --query {name} --yes", exit_code=True)
        yield "job-complete", terminal.take()


def refused() -> Iterator[tuple[str, str]]:
    """Ways to sign in that are refused, and a wrong password."""
    with EmbeddedBroker(listeners={"SASL": "SASL_PLAINTEXT"}, users={"alice": "secret"}) as kafka:
        with tempfile.TemporaryDirectory() as folder:
            terminal = Terminal(kafka.bootstrap_servers, Path(folder))
            plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            for name, lines in {
                "auth-token-url": [
                    "security.protocol=SASL_SSL",
                    "sasl.mechanism=OAUTHBEARER",
                    "sasl.oauthbearer.token.endpoint.url=https://localhost:1/token",
                    "sasl.oauthbearer.client.credentials.client.id=spark-job",
                    "sasl.oauthbearer.client.credentials.client.secret=secret",
                    "sasl.login.retry.backoff.max.ms=500",
                ],
                "auth-password": [
                    "security.protocol=SASL_PLAINTEXT",
                    "sasl.mechanism=PLAIN",
                    f'sasl.jaas.config={plain} username="alice" password="wrong";',
                ],
                "auth-command": [
                    "security.protocol=SASL_PLAINTEXT",
                    "sasl.mechanism=SCRAM-SHA-512",
                    "sasl.username=alice",
                    "sasl.password=secret",
                ],
            }.items():
                (Path(folder) / "client.properties").write_text("\n".join(lines))
                terminal.show("$ cat client.properties\n" + "\n".join(lines))
                terminal.run("transactions list --command-config client.properties", exit_code=True)
                yield name, terminal.take()


def examined() -> Iterator[tuple[str, str]]:
    """A healthy cluster, one that grants nothing, and one with problems, as `eos-kafka doctor` reports them."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(topics={TOPIC: 2, "lines": 4}) as kafka:
        terminal = Terminal(kafka.bootstrap_servers, Path(folder))
        options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC})
        with KafkaClient(options.client) as client:
            # Creates the decision topic.
            check_cluster(client, options)
        terminal.run(f"doctor --topic {TOPIC} --topic lines --role sink --role source --role operator", exit_code=True)
        yield "doctor-healthy", terminal.take()
    guarded = {"authorizer.class.name": STANDARD_AUTHORIZER, **_FEW_PARTITIONS}
    listeners = {"SASL": "SASL_PLAINTEXT"}
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(listeners=listeners, users={"alice": "secret"}, topics={TOPIC: 2}, config=guarded) as kafka,
    ):
        terminal = Terminal(kafka.bootstrap_servers, Path(folder))
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        (Path(folder) / "client.properties").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} username="alice" password="secret";\n'
        )
        terminal.run(f"doctor --topic {TOPIC} --role sink --command-config client.properties", exit_code=True)
        yield "doctor-locked", terminal.take()
    broken = {"transaction.version": "1", "transaction.partition.verification.enable": "false", **_FEW_PARTITIONS}
    with EmbeddedBroker(config=broken) as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic(DECISIONS, 8, {"cleanup.policy": "delete"})
        terminal = Terminal(kafka.bootstrap_servers, Path(folder))
        terminal.run("doctor --topic ordres --role sink", exit_code=True)
        yield "doctor-broken", terminal.take()


def failure(terminal: Terminal, action: Callable[[], object]) -> str:
    """Return the message of the error that an action ends with."""
    try:
        action()
    except EosKafkaError as error:
        terminal.show(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
        return terminal.take()
    raise AssertionError("the action was to fail")


@contextlib.contextmanager
def capture_warnings() -> Iterator[list[str]]:
    """Collect what the source logs."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep()
    logger = logging.getLogger("spark_eos.source")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


SITUATIONS: Final = (
    live,
    hanging,
    lost_marker,
    offsets,
    decided,
    taken_back,
    lost_in_part,
    lost_before_any,
    stopped,
    job,
    refused,
    examined,
)


def outputs() -> dict[str, str]:
    """Stage all situations and return what the commands print, by name."""
    return {name: text for situation in SITUATIONS for name, text in situation()}


def shown_outputs() -> Iterator[tuple[Path, str, str]]:
    """Yield what the pages show: the page, the name of the output and its text."""
    for page in sorted(PAGES.rglob("*.md")):
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            yield page, found["name"], found["text"].rstrip("\n")


def comparable(text: str) -> str:
    """Return a text without what is different in each run: times, durations, the width of columns, line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", text))


def main() -> int:
    """Run all commands and rewrite the pages."""
    printed = outputs()
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(
            _BLOCK.sub(lambda found: f"{found['head']}{printed[found['name']]}\n```\n", text), encoding="utf-8"
        )
    unused = sorted(printed.keys() - {name for _, name, _ in shown_outputs()})
    print(f"{len(printed)} outputs; shown on no page: {', '.join(unused) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
