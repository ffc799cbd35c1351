"""Try versions of PySpark against the embedded broker, and versions of Apache Kafka with the installed PySpark.

`python -m tests.compatibility --spark 4.1 --kafka 3.9.1` tries some; without arguments it tries all supported ones. The
results are a table in docs/deploy/compatibility.md: `--write` updates it.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.compatibility.environments import python_with
from tests.compatibility.trials import Trial
from tests.support.apache_kafka import Unavailable, apache_kafka
from tests.support.both_brokers import Kafka

# The newest patch of each.
SPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
KAFKA = ("3.6.2", "3.7.2", "3.8.1", "3.9.1", "4.0.1", "4.1.1", "4.2.0", "4.3.0", "4.4.0")
# Python data sources exist from this version on.
FIRST_WITH_DATA_SOURCES = (4, 0)


def ways(pyspark: str) -> list[str]:
    """Return the ways to write that a version supports."""
    by_data_source = tuple(map(int, pyspark.split(".")[:2])) >= FIRST_WITH_DATA_SOURCES
    return ["data source", "function"] if by_data_source else ["function"]


@contextmanager
def broker(kafka: str | None) -> Iterator[Kafka]:
    """Run a version of Apache Kafka, or the embedded broker."""
    if kafka is None:
        with EmbeddedBroker() as embedded:
            yield Kafka(embedded.bootstrap_servers)
    else:
        with apache_kafka(version=kafka) as node:
            yield Kafka(node.bootstrap_servers, "apache")


def tried(python: Path, by: str, kafka: str | None) -> str:
    """Run the jobs once; return the results."""
    with tempfile.TemporaryDirectory() as folder, broker(kafka) as address:
        trial = Trial(python, address, Path(folder) / "trial")
        trial.prepare()
        return f"{trial.stream(by)} | {trial.batch(by)}"


def main() -> int:
    """Try the chosen versions and print a row for each; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility", description=__doc__)
    parser.add_argument("--spark", nargs="*", help=f"minor versions of PySpark: {' '.join(SPARK)}")
    parser.add_argument("--kafka", nargs="*", help=f"versions of Apache Kafka: {' '.join(KAFKA)}")
    named = parser.parse_args()
    everything = named.spark is None and named.kafka is None
    failed = False
    rows = [(each, by, None) for each in named.spark or (SPARK if everything else ()) for by in ways(each)]
    rows += [(SPARK[-1], "data source", each) for each in named.kafka or (KAFKA if everything else ())]
    print("| PySpark | by | Kafka | stream | batch job |\n|---|---|---|---|---|", flush=True)
    for pyspark, by, kafka in rows:
        try:
            seen = tried(python_with(pyspark), by, kafka)
        except Unavailable as problem:
            seen = f"not tried: {problem} |"
        except AssertionError as problem:
            failed = True
            print(problem, file=sys.stderr)
            seen = "failed |"
        print(f"| {pyspark} | {by} | {kafka or 'broker_core'} | {seen} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
