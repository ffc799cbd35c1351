"""The whole work of each role, run by a principal with the role's rights, while an administrator does the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.admin import rights as roles
from spark_eos.admin.command import ExitCode, main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction, SinkOptions, sink_options
from spark_eos.runtime import process_state
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.sink.factory import pool_of
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared
from spark_eos.sink.protocol.state import QueryRun
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.sink.task.writer import TaskWriter
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
from tests.support.guarded_kafka import PASSWORD, GuardedKafka, Stage, guarded_kafka
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.security_roles import resource
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

RUN, RESTARTED = "run1", "run2"
BATCH = pa.RecordBatch.from_pydict({"value": [b"row"]})


class Scene:
    """A query's topics and groups, created by an administrator, and the principal whose rights are under test."""

    def __init__(self, kafka: GuardedKafka, root: KafkaClient, folder: Path) -> None:
        self.kafka = kafka
        self.world = World(kafka.bootstrap_servers, root)
        self.stage = Stage(kafka)
        self.folder = folder
        self.errors = ""
        self.group = unique("lag")
        self.names: Mapping[str, str] = {
            roles.PREFIX: "p",
            roles.DATA: self.world.topic,
            roles.DECISIONS: self.world.decisions,
            roles.READER_GROUP: self.group,
            roles.ONE_ID: f"p.{self.world.query}.{RUN}.w.0",
        }

    def grant(self, rights: Sequence[roles.Right]) -> None:
        """Grant these rights to the principal."""
        for right in rights:
            name, pattern = resource(right, self.names)
            self.stage.grant(right.operation, right.resource_type, name, pattern=pattern)

    def options(self, **more: str) -> dict[str, str]:
        """Return the principal's connection options."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "kafka.bootstrap.servers": self.kafka.sasl_address,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{module} required username="{self.stage.user}" password="{PASSWORD}";',
            "kafka.default.api.timeout.ms": "20000",
            **more,
        }

    def sink_options(self, **more: str) -> SinkOptions:
        """Return the options of the query's sink."""
        world = self.world
        given = {"topic": world.topic, "decisionTopic": world.decisions, "transactionalIdPrefix": "p", **more}
        return sink_options(self.options(**given))

    @contextmanager
    def cluster(self) -> Iterator[KafkaCluster]:
        """Return the cluster as the principal connects to it."""
        with KafkaClient(self.sink_options().client) as client:
            yield KafkaCluster(client, self.world.decisions)

    def config_words(self) -> list[str]:
        """Write the principal's settings to a file and return the option that names it."""
        config = self.folder / f"{self.stage.user}.properties"
        lines = [f"{name.removeprefix('kafka.')}={value}\n" for name, value in self.options().items()]
        config.write_text("".join(lines))
        return ["--command-config", str(config)]

    def command(self, *words: str) -> int:
        """Run `eos-kafka` as the principal."""
        area = words[:1] if words[0] in ("timeline", "watch") else words[:2]
        reach = ["--bootstrap-server", self.kafka.sasl_address, *self.config_words()]
        return main([*area, *reach, *words[len(area) :]])


def write_as(scene: Scene, cluster: KafkaCluster, run: str, micro_batch: int) -> Any:
    """Run the only task of a micro-batch."""
    world, options = scene.world, scene.sink_options()
    log = LogOn(cluster, "p", world.query, world.decisions)
    pool = pool_of(process_state(), cluster, "p", world.query, run)
    place = Place(world.query, run, micro_batch, 0)
    return TaskWriter(options, place, cluster, pool, TaskTransaction(cluster.client, options), log.log).write(
        iter([BATCH])
    )


def task(scene: Scene) -> None:
    """Write, and write again what is decided, for the driver to drop."""
    with scene.cluster() as cluster:
        for run in (RUN, RESTARTED):
            message = write_as(scene, cluster, run, 0)
            assert isinstance(message, Prepared)
            scene.world.committer(run).commit([message], 0)
    assert scene.world.visible() == ["row"]


def task_that_looks(scene: Scene) -> None:
    """Write; do not write again what is decided, and find its outcome in the log."""
    with scene.cluster() as cluster:
        first = write_as(scene, cluster, RUN, 0)
        assert isinstance(first, Prepared)
        scene.world.committer(RUN).commit([first], 0)
        assert isinstance(write_as(scene, cluster, RUN, 0), AlreadyCommitted)
        # The id is used for another transaction, so only the log shows the outcome of the first.
        assert isinstance(write_as(scene, cluster, RUN, 1), Prepared)
        assert isinstance(write_as(scene, cluster, RUN, 0), AlreadyCommitted)
    assert scene.world.visible() == ["row"]


def driver(scene: Scene) -> None:
    """Check the cluster, decide and complete, take over after a restart, and abort."""
    world = scene.world
    with scene.cluster() as cluster:

        def committer(run: str) -> Committer:
            log = LogOn(cluster, "p", world.query, world.decisions, run=run)
            return Committer(cluster, QueryRun(log.log, "p", world.query, run, OnLostTransaction.FAIL))

        check_cluster(cluster.client, scene.sink_options())
        committer(RUN).commit([world.prepare(RUN)], 0)
        left_open = world.prepare(RUN, 1)
        second = world.prepare(RESTARTED, 1)
        restarted = committer(RESTARTED)
        restarted.commit([second], 1)
        ended(scene, left_open)
        third = world.prepare(RESTARTED, 2)
        restarted.abort([third], 2)
        ended(scene, third)
    assert world.visible() == ["row of 0", "row of 1"]


def _reader(given: Mapping[str, str], topic: str, **more: str) -> StreamReader:
    return StreamReader({**given, "subscribe": topic, "startingOffsets": "earliest", **more}, source_schema(False))


def _commit_row(scene: Scene) -> None:
    """Commit a row, and wait for its marker: Apache Kafka answers EndTxn before it writes that."""
    prepared = scene.world.prepare(RUN)
    scene.world.committer(RUN).commit([prepared], 0)
    wait_until(lambda: scene.world.state_of(prepared) == "CompleteCommit", "the row is visible")


def source_driver(scene: Scene, **more: str) -> None:
    """Plan two micro-batches, and let an administrator read one."""
    world = scene.world
    _commit_row(scene)
    reader = _reader(scene.options(), world.topic, **more)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    plain = _reader({"kafka.bootstrap.servers": world.address}, world.topic)
    assert [rows.num_rows for piece in reader.partitions(start, end) for rows in plain.read(piece)] == [1]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def source_task(scene: Scene) -> None:
    """Read what an administrator has planned."""
    world = scene.world
    _commit_row(scene)
    plain = _reader({"kafka.bootstrap.servers": world.address}, world.topic)
    start = plain.initialOffset()
    pieces = plain.partitions(start, plain.latestOffset(start, plain.getDefaultReadLimit()))
    plain.stop()
    own = _reader(scene.options(), world.topic)
    assert [rows.num_rows for piece in pieces for rows in own.read(piece)] == [1]


def _decided(scene: Scene) -> None:
    """Leave a decision with one open transaction, and one whose outcome only the log shows."""
    world = scene.world
    first = world.prepare(RUN)
    log = world.log()
    log.decide(world.decision(first), log.take_over())


def _inconclusive(scene: Scene) -> None:
    _decided(scene)
    # Another InitProducerId aborts the decided transaction and raises the producer epoch.
    scene.world.prepare(RUN)


def _decisions(scene: Scene, command: str, *more: str) -> int:
    words = ("--decision-topic", scene.world.decisions)
    query = () if command == "list" else ("--prefix", "p", "--query", scene.world.query)
    return scene.command("decisions", command, *words, *query, *more)


def decisions_look(scene: Scene) -> None:
    """List and show a decision whose outcome is in the log."""
    _inconclusive(scene)
    done(_decisions(scene, "list"))
    done(_decisions(scene, "show"))


def decisions_end(scene: Scene) -> None:
    """Roll one decision forward, and close another one that is lost."""
    _decided(scene)
    done(_decisions(scene, "complete", "--yes", "--watch-seconds", "0"))
    assert scene.world.visible() == ["row of 0"]
    scene.world.query = unique("query")
    _inconclusive(scene)
    done(_decisions(scene, "abort", "--yes", "--watch-seconds", "0", "--restart", "skip", "--query-is-dead"))


def transactions_list(scene: Scene) -> None:
    """List transactions."""
    scene.world.prepare(RUN)
    done(scene.command("transactions", "list"))


def transactions_describe(scene: Scene) -> None:
    """Describe one id."""
    scene.world.prepare(RUN)
    done(scene.command("transactions", "describe", "--transactional-id", scene.names[roles.ONE_ID]))


def describe_producers(scene: Scene) -> None:
    """Describe a partition's producers."""
    scene.world.prepare(RUN)
    done(scene.command("transactions", "describe-producers", "--topic", scene.world.topic, "--partition", "0"))


def find_hanging(scene: Scene) -> None:
    """Check a live transaction, which does not hang."""
    scene.world.prepare(RUN)
    done(scene.command("transactions", "find-hanging", "--topic", scene.world.topic, "--max-transaction-timeout", "-1"))


def transactions_abort(scene: Scene) -> None:
    """Refuse to abort a live transaction, and abort it with force."""
    scene.world.prepare(RUN)
    words = ("transactions", "abort", "--topic", scene.world.topic, "--partition", "0", "--start-offset", "0")
    done(scene.command(*words), ExitCode.NOTHING_DONE)
    done(scene.command(*words, "--force", "--yes"))


def force_terminate(scene: Scene) -> None:
    """Terminate an id's open transaction."""
    prepared = scene.world.prepare(RUN)
    named = ("--transactional-id", scene.names[roles.ONE_ID])
    done(scene.command("transactions", "force-terminate", *named, "--force", "--yes"))
    ended(scene, prepared, "Empty")


def timeline(scene: Scene) -> None:
    """Draw a partition's timeline."""
    scene.world.prepare(RUN)
    done(scene.command("timeline", scene.world.topic, "--out", str(scene.folder / "timeline.html")))


def watch(scene: Scene) -> None:
    """Look once at a topic with a live transaction."""
    scene.world.prepare(RUN)
    done(scene.command("watch", "--topic", scene.world.topic, "--count", "1"))


def ended(scene: Scene, prepared: Prepared, *also: str) -> None:
    """Wait until a transaction is aborted."""
    wait_until(lambda: scene.world.state_of(prepared) in ("CompleteAbort", *also), "the transaction is aborted")


class CommandFailed(Exception):
    """An unexpected exit code of a command."""


def done(code: int, wanted: ExitCode = ExitCode.DONE) -> None:
    """Check the exit code of a command."""
    if code != wanted:
        raise CommandFailed(f"exit code {code}")


WORK: Mapping[str, Callable[[Scene], object]] = {
    "sink, task": task,
    "sink, driver": driver,
    "source, driver": source_driver,
    "source, task": source_task,
    "`decisions list`, `show`": decisions_look,
    "`decisions complete`, `abort`": decisions_end,
    "`transactions list`": transactions_list,
    "`transactions describe`": transactions_describe,
    "`transactions describe-producers`": describe_producers,
    "`transactions find-hanging`": find_hanging,
    "`transactions abort`": transactions_abort,
    "`transactions force-terminate`": force_terminate,
    "`timeline`": timeline,
    "`watch`": watch,
}


@contextmanager
def scene_of(kafka: GuardedKafka, folder: Path) -> Iterator[Scene]:
    """Create a scene, and clean up at the end of the block."""
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as root:
        scene = Scene(kafka, root, folder)
        with closing(scene.stage):
            yield scene


@pytest.fixture(scope="module")
def guarded(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """Run a broker with an authorizer for the tests of a module."""
    with guarded_kafka(broker_kind, tmp_path_factory.mktemp("guarded")) as kafka:
        yield kafka


@pytest.fixture
def scene(guarded: GuardedKafka, tmp_path: Path) -> Iterator[Scene]:
    """Return a query and its principal for one test."""
    with scene_of(guarded, tmp_path) as scene:
        yield scene
