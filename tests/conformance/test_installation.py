"""Sdist and wheel install with their dependencies on each Python that is supported and that this machine has."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

import broker_core
from tests.support.distributions import DEADLINE_S, ROOT, build, copy_repository, interpreter, run

SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "setup.cfg")
pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
VERSIONS = re.findall(r"Python :: (3\.\d+)", SETTINGS["metadata"]["classifiers"])
# The broker is embedded, and both commands answer.
CODE = """
from broker_core import EmbeddedBroker
import spark_eos
with EmbeddedBroker() as kafka:
    kafka.produce("orders", ["one"])
    print(kafka.records("orders").values, spark_eos.__version__)
"""


@pytest.fixture(scope="module")
def distributions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not request.config.getoption("--apache"):
        pytest.skip("needs libraries from a package index: run with --apache")
    found = build(copy_repository(tmp_path_factory.mktemp("tree")), tmp_path_factory.mktemp("dist"))
    return {path.suffix: path for path in found}


@pytest.mark.parametrize("suffix", [".whl", ".gz"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_distribution_installs_and_works(
    distributions: dict[str, Path], version: str, suffix: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is missing: no python{version} on the PATH, and none of pyenv.")
    run(python, "-m", "venv", tmp_path / "installed", cwd=tmp_path)
    scripts = tmp_path / "installed/bin"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    # Nothing of this checkout is on the path.
    run(scripts / "python", *pip, f"{distributions[suffix]}[broker]", cwd=tmp_path, PYTHONPATH="")
    for command in ("eos-kafka", "broker-core"):
        said = run(scripts / command, "--version", cwd=tmp_path, PYTHONPATH="")
        assert said.strip() == f"{command} {broker_core.__version__}"
    worked = run(scripts / "python", "-c", CODE, cwd=tmp_path, PYTHONPATH="")
    assert worked.strip() == f"[b'one'] {broker_core.__version__}"
