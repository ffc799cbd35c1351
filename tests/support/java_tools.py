"""Apache Kafka's command-line tools, and so its Java client, run against any broker or folder."""

import json
import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support.apache_kafka import Unavailable, fetch_jars, kafka_version
from tests.support.child_process import start_child
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE, java_problem

TOOLS_POM = Path(__file__).with_name("kafka-tools-pom.xml")
# What has kafka-configs.sh, which is still part of the server. Its other jars would bring a logger to standard output.
_SERVER_JARS = ("kafka_*.jar", "scala-*.jar")
_DEADLINE_S = 120
JVM = ("-Xmx256m", *SHORT_LIFE)


class Ran(NamedTuple):
    """The exit status of a tool, -1 if it did not end in time, and its outputs."""

    status: int
    output: str
    errors: str


class JavaProgram:
    """A JVM that runs a source file, with Kafka's tools and client, and answers each line of JSON with one.

    Raises `Unavailable` if Java, Maven or the jars are missing.
    """

    def __init__(self, source: str, jars: Iterable[Path] = ()) -> None:
        problem = java_problem()
        if problem:
            raise Unavailable(problem)
        program = Path(__file__).with_name("java") / source
        *java, path = java_with(fetch_jars(TOOLS_POM), *JVM)
        self._process = start_child(
            [*java, os.pathsep.join(map(str, (path, *jars))), str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the JVM."""
        self._process.kill()
        self._process.communicate()

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Send a line and return its answer; `what` names it if the JVM has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(fields) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the JVM ended in or before {what} with exit status {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


class ToolRunner(JavaProgram):
    """A JVM that runs many tools, which saves the second that each start of one takes."""

    def __init__(self) -> None:
        server = fetch_jars(version=kafka_version(TOOLS_POM))
        super().__init__("ToolRunner.java", (jar for name in _SERVER_JARS for jar in server.glob(name)))

    def run(self, tool: str, *arguments: str, lines: str = "", deadline_s: int = 20) -> Ran:
        """Run `tool`, a class below org.apache.kafka.tools or kafka.admin, with `lines` as its standard input."""
        name = tool if tool.startswith("kafka.admin.") else f"org.apache.kafka.tools.{tool}"
        return Ran(**self.ask(tool, tool=name, arguments=arguments, input=lines, deadline_ms=1000 * deadline_s))


# It ends with the process.
_runner = cache(ToolRunner)


def java_tool(tool: str, *arguments: str, lines: str = "") -> Ran:
    """Run a tool that must succeed, in a JVM that all tests of the process share.

    Raises `Unavailable` if Java, Maven or the jars are missing.
    """
    ran = _runner().run(tool, *arguments, lines=lines, deadline_s=_DEADLINE_S)
    assert ran.status == 0, f"{tool}: exit status {ran.status}: {ran.output}{ran.errors[-2000:]}"
    return ran
