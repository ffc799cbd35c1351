"""The workflows and the image name what the repository has: targets, versions of Python, extras, files and commands."""

import json
import os
import re
import shlex
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.config import BrokerConfig, parse_properties
from broker_core.server.listeners import plan_listeners

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
DOCKER = ROOT / "conf/docker"
SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "setup.cfg")


def jobs_of(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


def commands() -> list[str]:
    return [
        step["run"] for path in WORKFLOWS for job in jobs_of(path).values() for step in job["steps"] if "run" in step
    ]


def targets_of_the_makefile() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def dockerfile() -> list[tuple[str, str]]:
    lines = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line and not line.startswith("#")]


def test_the_workflows_run_the_targets_of_the_makefile():
    named = {
        word
        for command in commands()
        if command.startswith("make ")
        for word in shlex.split(command)[1:]
        if "=" not in word
    }
    assert named <= targets_of_the_makefile()
    assert named >= {"lint", "types", "check", "test", "demo", "conformance", "compatibility", "docs"}


@pytest.mark.parametrize("target", ["check-broker", "check-rest", "test", "slow"])
def test_searches_are_short_by_hand_and_whole_in_the_workflow(target: str) -> None:
    """The program in the place of Python prints what it would have got."""
    stand_ins = ["RUN=sh -c 'echo $$SEARCHES' --", "PYTHON=true", "MAKE=true", "INSTALLED=none", "--old-file=none"]

    def forms(*asked: str) -> set[str]:
        command = ["make", "--no-print-directory", target, *stand_ins, *asked]
        environment = {"PATH": os.environ["PATH"]}
        return set(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout.split())

    assert (forms(), forms("SEARCHES=whole")) == ({"short"}, {"whole"})
    assert "make test SEARCHES=whole" in commands()


def test_the_workflows_try_every_supported_python():
    supported = [
        line.rpartition(" ")[2]
        for line in SETTINGS["metadata"]["classifiers"].splitlines()
        if re.fullmatch(r".* :: 3\.\d+", line)
    ]
    for path, job in (("ci.yml", "check"), ("release.yml", "install")):
        assert jobs_of(ROOT / ".github/workflows" / path)[job]["strategy"]["matrix"]["python"] == supported


def test_actions_are_pinned_to_a_commit_that_a_comment_names():
    used = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    pinned = re.compile(r" +- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
    assert len(used) > 20
    assert [line for line in used if not pinned.fullmatch(line)] == []


def test_the_release_attests_what_it_publishes():
    job = jobs_of(ROOT / ".github/workflows/release.yml")["publish"]
    assert job["permissions"] == {"id-token": "write", "attestations": "write"}
    attested = [step["with"] for step in job["steps"] if step["uses"].startswith("actions/attest@")]
    assert [each["subject-path"] for each in attested] == ["dist/*"] * 2
    [written] = {word for command in commands() for word in command.split() if word.endswith(".cdx.json")}
    assert [each["sbom-path"] for each in attested if "sbom-path" in each] == [written]


def test_every_job_has_a_timeout():
    assert [
        f"{path.name}: {name}"
        for path in WORKFLOWS
        for name, job in jobs_of(path).items()
        if "timeout-minutes" not in job
    ] == []


def test_the_release_installs_extras_that_exist():
    matrix = jobs_of(ROOT / ".github/workflows/release.yml")["install"]["strategy"]["matrix"]
    assert set(matrix["extra"]) <= set(SETTINGS["options.extras_require"])


def test_the_image_is_built_from_files_that_exist_and_are_sent():
    sent = {line.removeprefix("!") for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()}
    copied = [
        source
        for instruction, words in dockerfile()
        if instruction == "COPY" and not words.startswith("--from")
        for source in words.split()[:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists() or source not in sent] == []


def test_the_image_installs_extras_that_exist():
    [extras] = [found for _, words in dockerfile() for found in re.findall(r"\.whl\)\[([\w,]+)\]", words)]
    assert set(extras.split(",")) <= set(SETTINGS["options.extras_require"])


@pytest.mark.parametrize("instruction", ["ENTRYPOINT", "HEALTHCHECK"])
def test_the_image_runs_console_scripts(instruction: str):
    scripts = [line.split(" = ")[0] for line in SETTINGS["options.entry_points"]["console_scripts"].split("\n")[1:]]
    [words] = [words for name, words in dockerfile() if name == instruction]
    assert json.loads(words[words.index("[") :])[0] in scripts


def test_the_image_does_not_run_as_root():
    assert [words for instruction, words in dockerfile() if instruction == "USER"] == ["10001"]


def test_the_listeners_of_the_image_are_published():
    config = BrokerConfig().override(parse_properties((DOCKER / "broker.properties").read_text()))
    plans = {plan.name: plan for plan in plan_listeners(config, brokers=1, host="127.0.0.1", port=0)}
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    service = services[plans["NETWORK"].advertised.host]
    assert f"127.0.0.1:{plans['HOST'].advertised.port}:{plans['HOST'].bind.port}" in service["ports"]
