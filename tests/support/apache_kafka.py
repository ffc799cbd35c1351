"""One KRaft node of Apache Kafka, the reference of the conformance tests, run from jars that Maven fetches once."""

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

from kafka.protocol.metadata import FindCoordinatorRequest

from tests.support.child_process import start_child
from tests.support.class_archive import CACHE, java_with
from tests.support.java import SHORT_LIFE, java_problem
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

POM = Path(__file__).with_name("apache-kafka-pom.xml")
FETCH_DEADLINE_S = 600
START_DEADLINE_S = 120
STOP_DEADLINE_S = 30
DATA = "data"

JVM = ("-Xmx512m", *SHORT_LIFE)
_COORDINATOR_TYPES = (0, 1)
_SERVER_PORTS = (12_000, 32_000)
# Several test processes start nodes at the same time, so each draws its own ports.
_chance = random.SystemRandom()
_FIRST_DYNAMIC_QUORUM = (3, 9)
# The exit status of a JVM that a signal stopped names the signal, even after a clean shutdown.
STOPPED = (0, 128 + signal.SIGTERM)

# Tests write records with old dates, for which a broker looks 30 s after its start, and then every 5 minutes.
KEEPS_OLD_RECORDS = dict.fromkeys(("log.initial.task.delay.ms", "log.retention.check.interval.ms"), str(24 * 3600_000))
SMALL_NODE = KEEPS_OLD_RECORDS | {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <File name="file" fileName="{path}" append="true"><PatternLayout pattern="[%d] %p %m (%c)%n"/></File>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


class Unavailable(SkipTest):
    """A program cannot run on this machine; the message is one sentence that says why. pytest skips the test."""


@dataclass(frozen=True)
class ApacheKafka:
    """What a test knows of the running node; `data_folder` has one folder for each partition."""

    bootstrap_servers: str
    log_file: Path
    data_folder: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Stop the node with a clean shutdown, which closes its logs; the block continues without it."""
        self.process.terminate()
        assert self.process.wait(STOP_DEADLINE_S) in STOPPED, "Apache Kafka did not stop cleanly"

    def kill(self) -> None:
        """Kill the node, as in a crash; the block continues without it."""
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)


def kafka_version(pom: Path = POM) -> str:
    """Return the version that the POM names."""
    version = ElementTree.parse(pom).getroot().findtext(".//{*}kafka.version")
    assert version, f"no kafka.version in {pom.name}"
    return version


def fetch_jars(pom: Path = POM, version: str | None = None) -> Path:
    """Return the folder of the jars of the POM's version, or of another one; Maven fetches them once."""
    version = version or kafka_version(pom)
    jars = CACHE / f"{pom.stem.removesuffix('-pom')}-{version}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven is missing: no mvn on the PATH to fetch Apache Kafka's jars with; install Maven.")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as folder:
        command = [
            maven,
            "--quiet",
            "--batch-mode",
            "--file",
            str(pom),
            f"-Dkafka.version={version}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={folder}/jars",
        ]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"Maven did not fetch Apache Kafka {version} within {FETCH_DEADLINE_S} s; check the network."
            ) from None
        if answer.returncode:
            errors = [line for line in (answer.stdout + answer.stderr).splitlines() if "ERROR" in line]
            reason = errors[0] if errors else "no reason given"
            raise Unavailable(f"Maven could not fetch Apache Kafka {version}: {reason}")
        try:
            # One rename makes the whole set visible at once, so that a fetch that is killed leaves no partial set.
            os.rename(f"{folder}/jars", jars)
        except OSError:
            if not jars.is_dir():
                raise
    return jars


def free_ports(count: int) -> list[int]:
    """Return free ports below the kernel's range for clients, because the node binds them seconds later."""
    found: list[int] = []
    while len(found) < count:
        port = _chance.randrange(*_SERVER_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found


def _has_dynamic_quorum(version: str | None) -> bool:
    """Return whether the version supports KIP-853; before it, the voters are a setting."""
    return version is None or tuple(map(int, version.split(".")[:2])) >= _FIRST_DYNAMIC_QUORUM


def _write_settings(folder: Path, properties: Mapping[str, str], log_level: str, has_dynamic_quorum: bool) -> str:
    """Write the node's settings and return its bootstrap address; a restarted node keeps its ports."""
    ports = folder / "ports"
    if not ports.exists():
        ports.write_text(" ".join(map(str, free_ports(2))), encoding="utf-8")
    port, controller_port = ports.read_text(encoding="utf-8").split()
    address = f"127.0.0.1:{port}"
    settings = (
        SMALL_NODE
        | {
            "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            **(
                {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"}
                if has_dynamic_quorum
                else {"controller.quorum.voters": f"{SMALL_NODE['node.id']}@127.0.0.1:{controller_port}"}
            ),
            "log.dirs": str(folder / DATA),
        }
        | dict(properties)
    )
    lines = [f"{key}={value}\n" for key, value in settings.items()]
    (folder / "server.properties").write_text("".join(lines), encoding="utf-8")
    (folder / "log4j2.xml").write_text(LOG4J.format(path=folder / "server.log", level=log_level), encoding="utf-8")
    return address


def _format_storage(java: list[str], folder: Path, has_dynamic_quorum: bool) -> None:
    cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    answer = subprocess.run(
        [
            *java,
            "kafka.tools.StorageTool",
            "format",
            *(["--standalone"] if has_dynamic_quorum else []),
            "--cluster-id",
            cluster_id,
            "--config",
            str(folder / "server.properties"),
        ],
        capture_output=True,
        text=True,
        timeout=START_DEADLINE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, f"Apache Kafka did not format its storage: {answer.stdout}{answer.stderr}"


def _answers(address: str) -> bool:
    """Return whether the node serves both kinds of coordinator; the requests also create their topics."""
    try:
        with RawClient(address) as client:
            answers = [
                client.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["ready"]), 4)
                for key_type in _COORDINATOR_TYPES
            ]
    except OSError:
        return False
    return all(coordinator.error_code == 0 for answer in answers for coordinator in answer.coordinators)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, folder: Path) -> None:
    def ready_or_dead() -> bool:
        return process.poll() is not None or _answers(address)

    wait_until(ready_or_dead, f"Apache Kafka serves {address}", deadline_s=START_DEADLINE_S, pause_s=0.2)
    if process.poll() is not None:
        logs = "".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in (folder / "console.log", folder / "server.log")
            if path.exists()
        )
        raise AssertionError(f"Apache Kafka ended with exit status {process.returncode}: {logs[-4000:]}")


def stop_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def apache_kafka(
    properties: Mapping[str, str] | None = None,
    folder: Path | None = None,
    *,
    log_level: str = "WARN",
    jvm: Sequence[str] = JVM,
    version: str | None = None,
) -> Iterator[ApacheKafka]:
    """Run one node until the block ends, with the given settings added to the small single-node defaults.

    Raises `Unavailable` if Java, Maven or the jars are missing.

    Args:
        folder: Where all files go and stay, for a later node that takes them over. It must exist, and be empty or hold
            the files of an earlier node. Without a folder, the files are temporary.
        properties: Broker settings.
        log_level: The level of the node's log.
        jvm: Options of the JVM. The defaults start fast and are slow in long runs.
        version: The version of Kafka; by default that of the POM.
    """
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    jars = fetch_jars(version=version)
    has_dynamic_quorum = _has_dynamic_quorum(version)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apache-kafka-")))
        address = _write_settings(folder, properties or {}, log_level, has_dynamic_quorum)
        java = java_with(jars, *jvm, f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}")
        if not (folder / DATA).exists():
            _format_storage(java, folder, has_dynamic_quorum)
        with (folder / "console.log").open("wb") as console:
            process = start_child(
                [*java, "kafka.Kafka", str(folder / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_ready(process, address, folder)
            yield ApacheKafka(address, folder / "server.log", folder / DATA, process)
        finally:
            stop_process(process)
