"""The examples in Java and Node pass as they are: each starts `broker-core` and controls it over HTTP."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.apache_kafka import FETCH_DEADLINE_S
from tests.support.java import java_problem
from tests.support.kafkajs import VERSION, fetch_kafkajs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BROKER_COMMAND = f"{sys.executable} -m broker_core"
NODE_VERSION = 20


@pytest.fixture(scope="session")
def may_fetch(request):
    if not request.config.getoption("--apache"):
        pytest.skip("needs libraries of other languages, from Maven Central and npm: run with --apache")


def run(command, folder, **environment):
    """Run a command in a folder; return its output."""
    answer = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-6000:]
    return answer.stdout


@pytest.mark.java
@pytest.mark.timeout(FETCH_DEADLINE_S + 60)
def test_java_example_passes(may_fetch, tmp_path):
    problem = java_problem()
    if problem:
        pytest.skip(problem)
    if shutil.which("mvn") is None:
        pytest.skip("Maven is missing: no mvn on the PATH to build examples/java with; install Maven.")
    project = tmp_path / "java"
    shutil.copytree(EXAMPLES / "java", project)
    run(["mvn", "--quiet", "--batch-mode", "test", f"-Dbroker.command={BROKER_COMMAND}"], project)
    reports = [ElementTree.parse(path).getroot() for path in (project / "target/surefire-reports").glob("*.xml")]
    counts = {
        name: sum(int(each.attrib[name]) for each in reports) for name in ("tests", "skipped", "failures", "errors")
    }
    written = sum(path.read_text().count("@Test\n") for path in (project / "src").rglob("*.java"))
    assert counts == {"tests": written, "skipped": 0, "failures": 0, "errors": 0}
    assert written > 3


@pytest.mark.kafkajs
@pytest.mark.timeout(FETCH_DEADLINE_S + 60)
def test_node_example_passes(may_fetch, tmp_path):
    libraries = fetch_kafkajs()
    version = run(["node", "--version"], tmp_path)
    if int(re.match(r"v(\d+)", version)[1]) < NODE_VERSION:
        pytest.skip(f"Node is too old: it is {version.strip()}; install Node {NODE_VERSION} or newer.")
    project = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", project, ignore=shutil.ignore_patterns("node_modules"))
    (project / "node_modules").symlink_to(libraries / "node_modules")
    output = run(["node", "--test", "--test-reporter=tap"], project, BROKER_COMMAND=BROKER_COMMAND)
    written = sum(path.read_text().count("\ntest(") for path in project.glob("*.test.mjs"))
    assert re.findall(r"^# (pass|fail|skipped) (\d+)$", output, re.MULTILINE) == [
        ("pass", str(written)),
        ("fail", "0"),
        ("skipped", "0"),
    ]
    assert written > 2


def test_examples_name_the_version_of_kafkajs_that_is_tested():
    package = json.loads((EXAMPLES / "node" / "package.json").read_text())
    assert package["devDependencies"] == {"kafkajs": f"^{VERSION}"}
    assert package["engines"] == {"node": f">={NODE_VERSION}"}
