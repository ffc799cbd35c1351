"""Run trials on a standalone cluster of one master and two workers: `python -m tests.clusters installed archive`.

Without names all of them run. The results are in docs/deploy/index.md.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.clusters import environments
from tests.clusters.spark_processes import SPARK_HOME, standalone_cluster
from tests.clusters.trials import TRIALS, Trials
from tests.support.both_brokers import Kafka


def main() -> int:
    """Run the trials that were named and print a row for each; the exit status is 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.clusters", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*TRIALS, []], help="what to try")
    parser.add_argument(
        "--spark-home", type=Path, default=SPARK_HOME, metavar="FOLDER", help="the Spark to try (default: PySpark's)"
    )
    named = parser.parse_args()
    names = named.names or [*TRIALS]
    failed = False
    # Ends the processes of Spark, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print("| trial | seconds | result |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="clusters-") as temporary:
        built = environments.wheel(Path(temporary) / "dist")
        nodes = environments.with_package(built)
        for name in names:
            # Each trial has a cluster of its own: some of them kill it.
            with EmbeddedBroker() as broker, standalone_cluster(Path(temporary) / name, named.spark_home) as cluster:
                trials = Trials(cluster, Kafka(broker.bootstrap_servers), nodes, built)
                trials.prepare()
                began = time.monotonic()
                try:
                    seen = TRIALS[name](trials)
                except AssertionError as problem:
                    failed = True
                    print(problem, file=sys.stderr)
                    seen = "failed"
                print(f"| {name} | {time.monotonic() - began:.0f} | {seen} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
