"""A copy of the project without one folder of `broker_core/features`, and what still has to work there.

`python -m tests.support.without_feature share_groups` runs the unit tests of the broker in such a copy, without the
tests that import the feature; `all` does it for each feature. The suite runs `SESSIONS`, which is shorter.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import networkx as nx

from tests.support.architecture import import_graph, read_modules

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path("broker_core", "features")
FEATURES: Final = sorted(path.parent.name for path in (ROOT / FOLDER).glob("*/__init__.py"))
_COPIED: Final = (
    *("setup.py", "setup.cfg", "pyproject.toml", "Makefile", "README.md", "pyspark_eos_kafka.py"),
    *("broker_core", "spark_eos", "stubs", "tests", "examples", "docs", "conf"),
)
_UNIT: Final = Path("tests", "unit", "broker_core")

# In each copy: writes in a transaction, reads as a group, and imports each module whose libraries are installed.
SESSIONS: Final = """
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from confluent_kafka import Consumer, Producer

for copy in sys.argv[1:]:
    print(copy, flush=True)
    sys.path.insert(0, copy)
    for name in [each for each in sys.modules if each.partition(".")[0] == "broker_core"]:
        del sys.modules[name]
    import broker_core
    assert Path(broker_core.__file__).is_relative_to(copy), broker_core.__file__
    with broker_core.EmbeddedBroker(topics={"in": 1}) as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer(servers | {"transactional.id": "t"})
        producer.init_transactions()
        for value, end in ((b"lost", producer.abort_transaction), (b"kept", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce("in", value)
            producer.flush()
            end()
        consumer = Consumer(servers | {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["in"])
        found = consumer.poll(30)
        assert found is not None and found.value() == b"kept", found
        consumer.commit(message=found, asynchronous=False)
        consumer.close()
        assert kafka.group("g").committed[("in", 0)] == 3, kafka.group("g").committed
        assert kafka.metrics is not None
        kafka.assert_quiescent()
    for found in walk_packages(broker_core.__path__, "broker_core."):
        try:
            import_module(found.name)
        except ModuleNotFoundError as error:
            assert not error.name.startswith("broker_core"), (found.name, error)
"""


def copy_without(feature: str, target: Path, *names: str) -> None:
    """Copy these files and folders of the project, without the folder of a feature."""
    for name in names:
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, target / name)
        else:
            # With the bytecode, which saves seconds.
            shutil.copytree(ROOT / name, target / name)
    shutil.rmtree(target / FOLDER / feature)


def run_in(target: Path, *command: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, which it imports from; return its end with what it printed."""
    environment = os.environ | {"PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=target,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def files_with(feature: str) -> set[Path]:
    """Return the test files that belong to a feature or import it, also through a helper, relative to the root."""
    modules = list(read_modules(ROOT, "broker_core", "tests"))
    package = f"broker_core.features.{feature}."
    inside = {each.name for each in modules if f"{each.name}.".startswith(package)}
    # The rest of the product works without the feature.
    graph = import_graph([each for each in modules if each.name in inside or each.name.startswith("tests.")])
    importers = inside.union(*(nx.ancestors(graph, each) for each in inside))
    own = {path.relative_to(ROOT) for path in ROOT.glob(f"tests/*/{FOLDER}/{feature}/**/*.py")}
    return own | {Path(f"{each.replace('.', '/')}.py") for each in importers if each.startswith("tests.")}


def run_unit_tests(feature: str, *arguments: str) -> int:
    """Run the broker's unit tests in a copy without a feature; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        copy_without(feature, target, *_COPIED)
        for test in files_with(feature):
            (target / test).unlink()
        done = run_in(target, "-m", "pytest", str(_UNIT), "-q", "-p", "no:cacheprovider", *arguments)
    print(f"without {feature}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}", flush=True)
    return done.returncode


def main() -> int:
    """Run the unit tests without the named features; return 1 if some of them fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.without_feature", allow_abbrev=False)
    parser.add_argument("feature", choices=(*FEATURES, "all"))
    arguments, more = parser.parse_known_args()
    chosen = FEATURES if arguments.feature == "all" else [arguments.feature]
    return max(min(1, run_unit_tests(feature, *more)) for feature in chosen)


if __name__ == "__main__":
    sys.exit(main())
