"""librdkafka's tests that need a broker, built from the sources that the crate rdkafka-sys contains."""

import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.foreign.brokers import Place, running, three_brokers
from tests.foreign.fetching import crate, require, run
from tests.foreign.outcomes import FAILED, Outcomes, from_librdkafka
from tests.support.apache_kafka import fetch_jars
from tests.support.java import java_command
from tests.support.java_tools import TOOLS_POM

CRATE: Final = "rdkafka-sys"
# The suite's scenarios for newer brokers, which differ in this setting.
CREATES_TOPICS: Final = {"default": "true", "noautocreate": "false"}
SETTINGS: Final = {
    "num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Kafka's default: some tests expect that consumers started together join the same generation.
    "group.initial.rebalance.delay.ms": "3000",
}
# None that needs no broker.
OPTIONS: Final = ("-p1", "-L")
# Most of a test's time is waiting.
AT_A_TIME: Final = 4
# The suite's own start script does the same.
LIBRARIES: Final = "../src:../src-cpp"
# The runner multiplies its deadlines by this: the machine is slower than the suite expects.
SLOWNESS: Final = 3
DEADLINE_S: Final = 900
# The suite expects Kafka's scripts in a folder; its tests that run here call these.
TOOLS: Final = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}
SCRIPT: Final = '#!/bin/sh\nexec "{java}" -Xmx256m -cp "{jars}/*" org.apache.kafka.tools.{tool} "$@"\n'
# Tests from 1000 on are for setups of their own or manual.
_TESTS: Final = re.compile(r"^ +_TEST\((0\d{3})_(\w+)", re.MULTILINE)


def run_librdkafka(version: str, kind: str, log: Path, only: str | None) -> Outcomes:
    """Run the tests; `only` is a part of a name.

    Some create topics with three replicas, so `broker_core` runs as three brokers. Apache Kafka is one node: in a
    cluster whose nodes sign in as anonymous users, like the clients, an authorizer does not get ready. Each number has
    a process of its own, because the runner kills itself if a test runs into its deadline.
    """
    tests = _built(crate(CRATE, version) / "librdkafka") / "tests"
    names = _TESTS.findall((tests / "test.c").read_text(encoding="utf-8"))
    numbers = sorted({number for number, rest in names if (only or "") in f"{number}_{rest}"})
    outcomes: Outcomes = {}
    with log.open("wb") as output, ThreadPoolExecutor(AT_A_TIME) as pool:
        for scenario, creates_topics in CREATES_TOPICS.items():
            settings = SETTINGS | {"auto.create.topics.enable": creates_topics}
            with running(kind, Place(settings)) if kind == "apache" else three_brokers(settings) as address:
                for printed, found in pool.map(partial(_test, tests, address, scenario), numbers):
                    output.write(printed)
                    outcomes |= found
    return outcomes


def _built(folder: Path) -> Path:
    require("make", "make")
    require("g++", "a C++ compiler")
    if not (folder / "Makefile.config").exists():
        run(["./configure"], folder, {})
    jobs = f"-j{os.cpu_count()}"
    run(["make", jobs, "libs"], folder, {})
    run(["make", jobs, "-C", "tests", "build"], folder, {})
    return folder


def _test(tests: Path, address: str, scenario: str, number: str) -> tuple[bytes, Outcomes]:
    with tempfile.TemporaryDirectory(prefix="librdkafka-") as folder:
        settings = Path(folder) / "test.conf"
        for name, tool in TOOLS.items():
            script = Path(folder) / "bin" / name
            script.parent.mkdir(exist_ok=True)
            text = SCRIPT.format(java=java_command(), jars=fetch_jars(TOOLS_POM), tool=tool)
            script.write_text(text, encoding="utf-8")
            script.chmod(0o755)
        settings.write_text(f"bootstrap.servers={address}\ntest.timeout.multiplier={SLOWNESS}\n", encoding="utf-8")
        environment = {
            "LD_LIBRARY_PATH": LIBRARIES,
            "BROKERS": address,
            "KAFKA_PATH": folder,
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_KAFKA_VERSION": "4.0.0",
            "TESTS": number,
        }
        ended = subprocess.run(
            ["./test-runner", *OPTIONS, "-s", scenario],
            cwd=tests,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            check=False,
        )
    outcomes = from_librdkafka(ended.stdout.decode(errors="replace"))
    if ended.returncode and FAILED not in outcomes.values():
        outcomes[f"{number} (exit status {ended.returncode})"] = FAILED
    return ended.stdout, outcomes
