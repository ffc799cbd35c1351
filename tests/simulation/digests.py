"""Print the digests of some seeds' traces, to compare two processes: `python -m tests.simulation.digests 1 2 3`."""

import argparse

from tests.simulation.world import play

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.digests", description=__doc__)
    parser.add_argument("seed", nargs="+", type=int)
    parser.add_argument("--unjudged", action="store_true", help="end before the judges read the logs")
    arguments = parser.parse_args()
    for seed in arguments.seed:
        print(seed, play(seed, judged=not arguments.unjudged).digest)
