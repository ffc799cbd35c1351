"""Print the digests of some seeds' traces: `python -m tests.simulation.digests 1 2 3`, to compare two processes."""

import sys

from tests.simulation.world import play

if __name__ == "__main__":
    for seed in sys.argv[1:]:
        print(seed, play(int(seed)).digest)
