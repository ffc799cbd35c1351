"""Kafka's tools for settings, client metrics and features, as `kafka-configs.sh` and others start them."""

import re
import subprocess

from tests.support.apache_kafka import Unavailable, fetch_jars
from tests.support.class_archive import java_with
from tests.support.java import java_problem
from tests.support.java_tools import JVM, TOOLS_POM, java_tool

# The last version whose kafka-configs.sh was published; it is part of the server's jars.
CONFIGS_VERSION = "4.3.1"
_DEADLINE_S = 120
_EPOCH = re.compile(r"Epoch: \d+")


def check() -> None:
    """Raise `Unavailable` if Java, Maven or the jars are missing."""
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    fetch_jars(TOOLS_POM)
    fetch_jars(version=CONFIGS_VERSION)


def configs(address: str, *arguments: str) -> list[str]:
    """Run kafka-configs.sh; return the lines it prints."""
    answer = subprocess.run(
        [
            *java_with(fetch_jars(version=CONFIGS_VERSION), *JVM),
            "kafka.admin.ConfigCommand",
            "--bootstrap-server",
            address,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, f"exit status {answer.returncode}: {answer.stdout}{answer.stderr[-2000:]}"
    return answer.stdout.splitlines()


def tool(name: str, address: str, *arguments: str) -> list[str]:
    """Run another tool; return the lines it prints, without epochs."""
    printed = java_tool(name, "--bootstrap-server", address, *arguments).output
    return [" ".join(_EPOCH.sub("Epoch: *", line).split()) for line in printed.splitlines()]
