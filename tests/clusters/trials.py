"""The trials, each a function that returns what was seen; a librdkafka consumer at read_committed counts the rows."""

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.clusters import environments
from tests.clusters.jobs import BY_FUNCTION, COPIED, IN, ONCE, ROWS
from tests.clusters.spark_processes import LEAN, SETTINGS, Cluster, Running, running
from tests.clusters.yarn import logs_of_containers, one_node_yarn
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, send, values_to_end
from tests.support.processes import Process, is_executor, tree
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parent
PARTITIONS = 2
LINES = 600
JOBS, CONNECT_JOBS = str(FOLDER / "jobs.py"), str(FOLDER / "connect_jobs.py")
DEADLINE_S = 240
# A path that leads to one environment on the driver, and to another one on the executors.
RELATIVE = "./environment/bin/python"


@dataclass
class Trials:
    """A cluster, the environments, and the topics of the trial that runs."""

    cluster: Cluster
    kafka: Kafka
    nodes: Path
    wheel: Path
    lines: int = 0

    def prepare(self) -> None:
        """Create the topics again, and write the first lines."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        topics = (IN, COPIED, BY_FUNCTION, ONCE)
        there = admin.list_topics(timeout=30).topics.keys() & set(topics)
        for future in admin.delete_topics([*there]).values() if there else ():
            future.result(30)
        wait_until(lambda: not admin.list_topics(timeout=30).topics.keys() & set(topics), "the topics are deleted")
        for future in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in topics]).values():
            future.result(30)
        self.lines = 0
        self.feed(LINES)

    def feed(self, count: int) -> None:
        """Write more lines, each of its own number."""
        values = [str(number).encode() for number in range(self.lines, self.lines + count)]
        producer = make_producer(self.kafka)
        for partition in range(PARTITIONS):
            send(producer, IN, values[partition::PARTITIONS], partition=partition)
        self.lines += count

    def written(self, topic: str) -> "Counter[bytes]":
        """Return how often each value is in a topic."""
        return Counter(values_to_end(self.kafka, topic, partitions=PARTITIONS))

    def check(self, topic: str, count: int) -> None:
        """Check that a topic has each row once, and no open transaction."""
        found = self.written(topic)
        assert sorted(found) == sorted(str(each).encode() for each in range(count)), f"{len(found)} rows of {count}"
        assert set(found.values()) == {1}, f"{found.total() - count} rows of {topic} were written twice"

    def nothing_open(self) -> None:
        """Wait until no transaction is open."""

        def is_none_open() -> bool:
            with KafkaClient(ClientOptions((self.kafka.bootstrap_servers,))) as client:
                return not list_transactions(client, states=["Ongoing"])

        wait_until(is_none_open, "no transaction is open", deadline_s=60, pause_s=0.5)

    def job(self, kind: str, folder: str) -> list[str]:
        """Return the arguments of a job."""
        path = self.cluster.folder / folder
        path.mkdir(exist_ok=True)
        return [JOBS, kind, self.kafka.bootstrap_servers, str(path)]

    def driver_has(self, environment: Path) -> None:
        """Let the relative path of the interpreter lead to an environment, where applications are submitted."""
        link = self.cluster.folder / "environment"
        link.unlink(missing_ok=True)
        link.symlink_to(environment)

    def executors_have(self, environment: Path) -> list[str]:
        """Return the arguments that send an environment to the executors, packed as it is."""
        archive = self.cluster.folder / f"{environment.name}.tar.gz"
        # Absolute links, as in archives of venv-pack.
        os.spawnlp(os.P_WAIT, "tar", "tar", "-czf", str(archive), "-C", str(environment), ".")
        return ["--archives", f"{archive}#environment"]


def installed(trials: Trials) -> str:
    """Run all jobs with the package installed on the nodes."""
    job = trials.job("everything", "installed")
    with trials.cluster.submitted("installed", job, python=trials.nodes / "bin" / "python") as application:
        application.succeed()
    _check_everything(trials)
    return "stream, `foreachBatch`, batch job run twice, read: rows once each"


def archive(trials: Trials) -> str:
    """Run all jobs with the package in an archive of venv-pack; the driver has it unpacked."""
    packed = environments.pack(trials.nodes, trials.cluster.folder / "environment.tar.gz")
    unpacked = trials.cluster.folder / "unpacked"
    unpacked.mkdir()
    os.spawnlp(os.P_WAIT, "tar", "tar", "-xzf", str(packed), "-C", str(unpacked))
    trials.driver_has(unpacked)
    arguments = ["--archives", f"{packed}#environment"]
    job = trials.job("everything", "archive")
    with trials.cluster.submitted("archive", job, python=RELATIVE, arguments=arguments) as application:
        application.succeed()
    _check_everything(trials)
    return f"the same; the archive has {packed.stat().st_size // 1_000_000} MB"


def _check_everything(trials: Trials) -> None:
    trials.check(ONCE, ROWS)
    trials.check(COPIED, LINES)
    trials.check(BY_FUNCTION, LINES)
    trials.nothing_open()


def py_files(trials: Trials) -> str:
    """Show what `--py-files` does, where the nodes lack the package's dependencies, and where they have them."""
    seen = []
    for name, job, dependencies in (
        ("plain", "everything", True),
        ("registered", "by_registration", False),
        ("registered, with the dependencies on the nodes", "by_registration", True),
    ):
        folder = trials.cluster.folder / f"py-files-{len(seen)}"
        made = environments.without_package(folder / "python", trials.nodes, dependencies=dependencies)
        arguments = ["--py-files", str(trials.wheel)]
        python = made / "bin" / "python"
        with trials.cluster.submitted(
            folder.name, trials.job(job, folder.name), python=python, arguments=arguments
        ) as application:
            status = application.process.wait(DEADLINE_S)
            seen.append(f"{name}: {_error(application.log) if status else 'works'}")
    return "; ".join(seen)


def killed_executor(trials: Trials) -> str:
    """Kill an executor and then a worker with its executor in mid-stream."""
    job = trials.job("copy", "killed")
    with trials.cluster.submitted("killed", job, python=trials.nodes / "bin" / "python") as application:
        application.wait_for(lambda: len(trials.written(COPIED)) >= LINES // 3, "the stream has begun")
        [first, second] = [_executors(worker) for worker in trials.cluster.workers]
        os.kill(first[0].pid, signal.SIGKILL)
        trials.feed(LINES)
        application.wait_for(lambda: len(trials.written(COPIED)) >= LINES + LINES // 3, "the stream goes on")
        trials.feed(LINES)
        trials.cluster.workers[1].kill()
        for each in second:
            if Path(f"/proc/{each.pid}").exists():
                os.kill(each.pid, signal.SIGKILL)
        application.wait_for(lambda: len(trials.written(COPIED)) == 3 * LINES, "all rows are written")
    trials.check(COPIED, 3 * LINES)
    return f"an executor, and a worker with its executor, killed with SIGKILL: {3 * LINES:,} rows once each"


def _executors(worker: Running) -> list[Process]:
    found = [each for each in tree(worker.process.pid) if is_executor(each)]
    assert found, "the worker has no executor"
    return found


def dynamic_allocation(trials: Trials) -> str:
    """Let executors come and go during a stream, with rows in bursts."""
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.cores": "1",
        "spark.cleaner.periodicGC.interval": "5s",
    }
    python = trials.nodes / "bin" / "python"
    job = trials.job("copy", "dynamic")
    with trials.cluster.submitted("dynamic", job, python=python, settings=settings) as application:
        for burst in range(3):
            application.wait_for(lambda: len(trials.written(COPIED)) == trials.lines, f"burst {burst} is written")
            trials.nothing_open()
            application.wait_for(lambda: _counts(application)[-1:] == ["0"], "all executors have gone")
            trials.check(COPIED, trials.lines)
            trials.feed(LINES)
        application.wait_for(lambda: len(trials.written(COPIED)) == trials.lines, "the last burst is written")
        counts = _counts(application)
    trials.check(COPIED, trials.lines)
    return f"executors over time: {', '.join(counts)}; {trials.lines:,} rows once each, no transaction left open"


def _counts(application: Running) -> list[str]:
    return re.findall(r"executors: (\d+)", application.log)


def no_package(trials: Trials) -> str:
    """Send executors an environment without the package."""
    folder = trials.cluster.folder / "no-package"
    made = environments.without_package(folder, trials.nodes, dependencies=False)
    return _refused(trials, made, "A task cannot import eos-kafka")


def other_version(trials: Trials) -> str:
    """Send executors an environment with another version of the package."""
    folder = trials.cluster.folder / "other-version"
    folder.mkdir()
    made = environments.with_other_version(folder, trials.nodes)
    return _refused(trials, made, f"of eos-kafka, and a task has version {environments.OTHER_VERSION} (build ")


def _refused(trials: Trials, environment: Path, wanted: str) -> str:
    trials.driver_has(trials.nodes)
    arguments = trials.executors_have(environment)
    message = ""
    for kind in ("batch", "read", "batch_by_function"):
        name = f"{environment.name}-{kind}"
        job = trials.job(kind, name)
        with trials.cluster.submitted(name, job, python=RELATIVE, arguments=arguments) as application:
            log = application.fail()
        assert wanted in log, log[-6000:]
        message = _error(log)
    assert not trials.written(ONCE)
    trials.nothing_open()
    return message


def connect(trials: Trials) -> str:
    """Run a client without the package against a server with it."""
    home = trials.cluster.home
    client = environments.connect_client(home) / "bin" / "python"
    server = [home / "bin" / "spark-submit", "--master", trials.cluster.address]
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": LEAN,
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    for name, value in settings.items():
        server += ["--conf", f"{name}={value}"]
    server += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    folder = trials.cluster.folder
    environment = {"PYSPARK_PYTHON": str(trials.nodes / "bin" / "python"), "SPARK_HOME": str(home)}
    with running(server, folder, "connect", environment) as started:
        pattern = re.compile(r"Spark Connect server started at: \S*:(\d+)")
        started.wait_for(lambda: pattern.search(started.log), "the server starts")
        found = pattern.search(started.log)
        assert found is not None
        remote = f"sc://127.0.0.1:{found[1]}"

        def run(kind: str) -> Running:
            arguments = [kind, remote, trials.kafka.bootstrap_servers, str(folder / "connect-checkpoints")]
            return Running([client, CONNECT_JOBS, *arguments], folder, f"connect-{kind}", {})

        run("everything").succeed()
        _check_everything(trials)
        # Spark 4.0 may report an error of its own that follows the task's; the server logs both.
        log = run("unnamed_write").fail() + started.log
        # Before Spark 4.3 the sink sees only the plan, which that of a checkpointed frame looks like.
        by_plan = "This write may belong to a streaming query over Spark Connect" in log
        assert by_plan or "This write belongs to a streaming query and does not see it" in log, log
        before = len(started.log)
        log = run("in_client_session").fail() + started.log[before:]
        assert "This write may belong to a streaming query over Spark Connect" in log, log
        trials.check(BY_FUNCTION, LINES)
        trials.prepare()
        run("by_sink_function").succeed()
        trials.check(BY_FUNCTION, LINES)
        if by_plan:
            before = len(started.log)
            run("checkpointed").fail()
            assert "for a checkpointed DataFrame any name" in started.log[before:]
        else:
            run("checkpointed").succeed()
            trials.check(ONCE, ROWS)
        assert "transactionTimeout" in _line(run("wrong_option").fail(), "transactionTimeout")
        assert "127.0.0.1:1" in _line(run("no_broker").fail(), "127.0.0.1:1")
        trials.nothing_open()
    seen = "batch job run twice, read, stream, `foreachBatch` with `jobId` run twice: rows once each; errors readable"
    return f"{seen}; a write without `jobId` refused by its {'plan' if by_plan else 'session'}"


def yarn(trials: Trials) -> str:
    """Run all jobs on YARN in cluster mode, with the package in an archive of venv-pack."""
    folder, home = trials.cluster.folder, trials.cluster.home
    packed = environments.pack(trials.nodes, folder / "environment.tar.gz")
    with one_node_yarn(folder, home) as conf:
        settings = SETTINGS | {
            # Otherwise Spark sends all of its jars.
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.stagingDir": f"file:{folder}/staging",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": RELATIVE,
            "spark.executorEnv.PYSPARK_PYTHON": RELATIVE,
            "spark.yarn.maxAppAttempts": "1",
            "spark.executor.instances": "1",
        }
        command: list[str | Path] = [home / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
        command += ["--archives", f"{packed}#environment"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        environment = {"HADOOP_CONF_DIR": str(conf), "SPARK_HOME": str(home)}
        with running([*command, *trials.job("everything", "yarn-job")], folder, "submit", environment) as application:
            status = application.process.wait(DEADLINE_S)
            assert status == 0, f"{application.log[-3000:]}\n{logs_of_containers(folder)[-6000:]}"
    _check_everything(trials)
    return "the same in cluster mode on one node of YARN, with the archive"


def _line(log: str, text: str) -> str:
    found = next((line for line in log.splitlines() if text in line), "")
    print(found[:600], file=sys.stderr)
    return found


def _error(log: str) -> str:
    """Return the last line of a log that names an exception."""
    lines = [line.strip() for line in log.splitlines() if re.match(r"\s*(\S*(Error|Exception)|\[[A-Z_.]+\])", line)]
    return max(lines, key=lambda line: "eos" in line, default="no error").replace("|", " ")[:600]


TRIALS: dict[str, Callable[[Trials], str]] = {
    each.__name__: each
    for each in (
        installed,
        archive,
        py_files,
        no_package,
        other_version,
        dynamic_allocation,
        connect,
        killed_executor,
        yarn,
    )
}
