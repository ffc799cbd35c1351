"""Apache Kafka's command-line tools, and so its Java client, run against any broker or folder."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka import Unavailable, fetch_jars
from tests.support.java import java_command, java_problem

TOOLS_POM = Path(__file__).with_name("kafka-tools-pom.xml")
_DEADLINE_S = 120
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Printed(NamedTuple):
    """The output of a tool."""

    output: str
    errors: str


def java_tool(tool: str, *arguments: str, folder: Path | None = None, lines: str = "") -> Printed:
    """Run `org.apache.kafka.tools.<tool>` with `lines` as its standard input.

    Raises `Unavailable` if Java, Maven or the jars are missing.
    """
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    answer = subprocess.run(
        [
            str(java_command()),
            *_JVM,
            "-cp",
            str(fetch_jars(TOOLS_POM) / "*"),
            f"org.apache.kafka.tools.{tool}",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
        input=lines,
    )
    assert answer.returncode == 0, f"{tool}: exit status {answer.returncode}: {answer.stdout}{answer.stderr[-2000:]}"
    return Printed(answer.stdout, answer.stderr)
