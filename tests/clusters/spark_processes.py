"""Spark's processes: a standalone cluster of two hosts, a Connect server, and applications that are submitted."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.support.waiting import wait_until

# Of the installed PySpark; a command can name another one.
SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 2
MEMORY = "700m"
START_DEADLINE_S = 120
JOB_DEADLINE_S = 240
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOG4J = """rootLogger.level = {level}
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{{1}}: %m%n%ex
"""
# For small executors on few cores.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "700m",
    "spark.driver.host": HOSTS[0],
    "spark.executor.extraJavaOptions": LEAN,
    "spark.driver.extraJavaOptions": LEAN,
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


class Running:
    """A process in a group of its own, and its log."""

    def __init__(self, command: Sequence[str | Path], folder: Path, name: str, environment: Mapping[str, str]) -> None:
        self.log_file = folder / f"{name}.log"
        conf = folder / f"{name}-conf"
        conf.mkdir(parents=True)
        level = "warn" if "spark-submit" in str(command[0]) else "info"
        (conf / "log4j2.properties").write_text(_LOG4J.format(level=level))
        python = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=python
                | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOSTS[0], "SPARK_CONF_DIR": str(conf)}
                | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Return what the process has logged."""
        return self.log_file.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], object], what: str, deadline_s: float = JOB_DEADLINE_S) -> None:
        """Wait for a condition; an end of the process is a failure."""

        def holds_or_ended() -> bool:
            return self.process.poll() is not None or bool(condition())

        wait_until(holds_or_ended, what, deadline_s=deadline_s, pause_s=0.2)
        assert self.process.poll() is None, f"ended before: {what}\n{self.log[-4000:]}"

    def succeed(self) -> str:
        """Wait for the end, which must be a success, and return the log."""
        assert self.process.wait(JOB_DEADLINE_S) == 0, self.log[-6000:]
        return self.log

    def fail(self) -> str:
        """Wait for the end, which must be a failure, and return the log."""
        assert self.process.wait(JOB_DEADLINE_S) != 0, f"succeeded:\n{self.log[-2000:]}"
        return self.log

    def kill(self) -> None:
        """Kill all of the group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def running(
    command: Sequence[str | Path], folder: Path, name: str, environment: Mapping[str, str]
) -> Iterator[Running]:
    """Run a process until the block ends."""
    started = Running(command, folder, name, environment)
    try:
        yield started
    finally:
        started.kill()


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster."""

    address: str
    folder: Path
    workers: Sequence[Running]
    home: Path = SPARK_HOME

    @contextmanager
    def submitted(
        self,
        name: str,
        job: Sequence[str],
        *,
        python: str | Path,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> Iterator[Running]:
        """Submit an application; `python` is what Spark starts on the driver and on the executors."""
        command: list[str | Path] = [self.home / "bin" / "spark-submit", "--master", self.address, *arguments]
        for key, value in (SETTINGS | dict(settings or {})).items():
            command += ["--conf", f"{key}={value}"]
        environment = {"PYSPARK_PYTHON": str(python), "SPARK_HOME": str(self.home)}
        with running([*command, *job], self.folder, name, environment) as application:
            yield application


@contextmanager
def standalone_cluster(folder: Path, home: Path = SPARK_HOME) -> Iterator[Cluster]:
    """Run a master and a worker for each of two loopback addresses, which Spark takes for two hosts."""
    lean = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": LEAN, "SPARK_HOME": str(home)}
    program = home / "bin" / "spark-class"
    kind = "org.apache.spark.deploy"
    command: list[str | Path] = [program, f"{kind}.master.Master", "--host", HOSTS[0], "--port", "0"]
    with running([*command, "--webui-port", "0"], folder, "master", lean) as master:
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        master.wait_for(lambda: pattern.search(master.log), "the master starts", START_DEADLINE_S)
        found = pattern.search(master.log)
        assert found is not None
        workers: list[Running] = []
        try:
            for host in HOSTS:
                start = [program, f"{kind}.worker.Worker", "--host", host, "--port", "0", "--webui-port", "0"]
                start += ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", folder / f"work-{host}", found[1]]
                workers.append(Running(start, folder, f"worker-{host}", lean | {"SPARK_LOCAL_IP": host}))
            master.wait_for(
                lambda: master.log.count("Registering worker") == len(HOSTS), "the workers register", START_DEADLINE_S
            )
            yield Cluster(found[1], folder, workers, home)
        finally:
            for worker in workers:
                worker.kill()
