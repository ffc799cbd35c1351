"""Try versions of PySpark against the embedded broker, and versions of Apache Kafka with the installed PySpark.

`python -m tests.compatibility --pyspark 4.1 --kafka 3.9` tries some; without versions, all that are supported, and a
rolling upgrade of three nodes, which is `--upgrade` alone. `--write` records the rows in `results.json` and in the
tables of docs/deploy/compatibility.md. `--quick` tries PySpark with the data source, a batch job and one kill only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import KafkaException

from broker_core import EmbeddedBroker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError
from spark_eos.options.client import ClientOptions
from tests.compatibility.commands import Commands
from tests.compatibility.environments import ROOT, pyspark_version, python_with
from tests.compatibility.jobs import CONNECT, DATA_SOURCE, DELTA, FUNCTIONS, OUT
from tests.compatibility.results import Row, record
from tests.compatibility.trials import Trial
from tests.support.apache_kafka import Unavailable, apache_kafka
from tests.support.both_brokers import Kafka
from tests.support.recorded_api_versions import PATCHES
from tests.support.version_answers import answers_of, as_served

PYSPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
UPGRADE = ("3.9.2", "4.4.0")
UPGRADE_DEADLINE_S = 1_800
# The exit status of a run that lacks Java, Maven or the jars.
UNAVAILABLE = 3
# What a broker or a client that fails a trial raises.
FAILURES = (AssertionError, EosKafkaError, KafkaException, OSError, subprocess.SubprocessError)
# Python data sources begin with it.
FIRST_WITH_DATA_SOURCES = (4, 0)
# What the release of Delta Lake in the trial is for.
WITH_DELTA = "4.0"


def ways(pyspark: str, *, is_quick: bool) -> list[str]:
    """Return the ways to write that a version has."""
    by_data_source = tuple(map(int, pyspark.split(".")[:2])) >= FIRST_WITH_DATA_SOURCES
    if not by_data_source:
        return [FUNCTIONS]
    if is_quick:
        return [DATA_SOURCE]
    return [DATA_SOURCE, CONNECT, FUNCTIONS, *([DELTA] if pyspark == WITH_DELTA else [])]


def patch_of(version: str) -> str:
    """Return the full version of Apache Kafka for a minor or a full one."""
    return next((each for each in PATCHES if each == version or each.rpartition(".")[0] == version), version)


@contextmanager
def trial_of(python: Path, kafka: str | None) -> Iterator[Trial]:
    """Run a version of Apache Kafka, or the embedded broker, with the topics of a trial."""
    with tempfile.TemporaryDirectory(prefix="compatibility-") as folder:
        if kafka is None:
            with EmbeddedBroker() as embedded:
                trial = Trial(python, Kafka(embedded.bootstrap_servers), Path(folder) / "trial")
                trial.prepare()
                yield trial
        else:
            with apache_kafka(version=kafka) as node:
                trial = Trial(python, Kafka(node.bootstrap_servers, "apache"), Path(folder) / "trial")
                trial.prepare()
                yield trial


def try_pyspark(minor: str, by: str, *, is_quick: bool) -> Iterator[tuple[str, str]]:
    """Run the jobs with a version of PySpark."""
    python = python_with(minor)
    yield "pyspark", pyspark_version(python)
    yield "by", by
    with trial_of(python, None) as trial:
        if is_quick:
            yield from replace(trial, kills=1).quick(by).items()
        elif by == DELTA:
            yield "stream", trial.recipe(by)
        else:
            yield "stream", trial.stream(by)
            yield from trial.others(by).items()


def try_kafka(version: str) -> Iterator[tuple[str, str]]:
    """Run the jobs on a version of Apache Kafka, which answers as `broker_core` does under that version."""
    python = Path(sys.executable)
    yield "kafka", version
    yield "pyspark", pyspark_version(python)
    with trial_of(python, version) as trial:
        with EmbeddedBroker(kafka_version=version) as embedded:
            ours, theirs = answers_of(embedded.bootstrap_servers), as_served(answers_of(trial.kafka.bootstrap_servers))
        assert ours == theirs, {
            name: (ours.get(name), theirs[name]) for name in theirs if ours.get(name) != theirs[name]
        }
        with KafkaClient(ClientOptions((trial.kafka.bootstrap_servers,))) as client:
            yield "transaction_version", str(client.transaction_version(refresh=True))
        yield "stream", trial.stream(DATA_SOURCE)
        yield from trial.others(DATA_SOURCE).items()
        yield "commands", Commands(trial.kafka, version).run(OUT)


def try_upgrade(first: str, last: str) -> Iterator[tuple[str, str]]:
    """Upgrade three nodes under queries."""
    yield "from", first
    yield "to", last
    yield "pyspark", pyspark_version(Path(sys.executable))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.crash.rolling_upgrade", "--from", first, "--to", last],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=UPGRADE_DEADLINE_S,
        check=False,
    )
    *said, last_line = ran.stdout.splitlines() or [""]
    print("\n".join(said), file=sys.stderr)
    if ran.returncode == UNAVAILABLE:
        raise Unavailable(last_line)
    assert ran.returncode == 0, last_line
    yield from json.loads(last_line).items()


def run(kind: str, columns: Callable[[], Iterator[tuple[str, str]]], *, writes: bool) -> bool:
    """Fill one row, print it, and record it; return whether all of it held."""
    row: Row = {"on": time.strftime("%Y-%m-%d")}
    began, holds = time.monotonic(), True
    try:
        for name, value in columns():
            row[name] = value
    except Unavailable as problem:
        print(f"not tried: {problem}", file=sys.stderr)
        return True
    except FAILURES as problem:
        holds = False
        print(problem, file=sys.stderr)
    shown = " | ".join(f"{name}: {value}" for name, value in row.items())
    print(f"{shown} | {time.monotonic() - began:.0f} s{'' if holds else ' | FAILED'}", flush=True)
    if writes and holds:
        record(kind, row)
    return holds


def main() -> int:
    """Try the chosen versions and print a row for each; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility", description=__doc__)
    parser.add_argument("--pyspark", nargs="*", metavar="VERSION", help=f"minor versions, of {' '.join(PYSPARK)}")
    parser.add_argument("--kafka", nargs="*", metavar="VERSION", help=f"versions, of {' '.join(PATCHES)}")
    parser.add_argument("--upgrade", action="store_true", help=f"from {' to '.join(UPGRADE)}")
    parser.add_argument("--quick", action="store_true", help="of PySpark: a batch job and a stream, killed once")
    parser.add_argument("--write", action="store_true", help="record the rows, on the page too")
    named = parser.parse_args()
    all_of_it = named.pyspark is None and named.kafka is None and not named.upgrade
    held = [
        run(
            "pyspark",
            lambda minor=minor, by=by: try_pyspark(minor, by, is_quick=named.quick),
            writes=named.write and not named.quick,
        )
        for minor in (PYSPARK if all_of_it or named.pyspark == [] else named.pyspark or ())
        for by in ways(minor, is_quick=named.quick)
    ]
    held += [
        run("kafka", lambda version=version: try_kafka(patch_of(version)), writes=named.write)
        for version in (PATCHES if all_of_it or named.kafka == [] else named.kafka or ())
    ]
    if named.upgrade or all_of_it:
        held.append(run("upgrade", lambda: try_upgrade(*UPGRADE), writes=named.write))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
