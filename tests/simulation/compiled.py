"""Compare the compiled broker with the sources: both play the same seeds, and their traces have to be the same.

`python -m tests.simulation.compiled --seeds 100`, after `python -m tests.support.compiled`.
"""

import argparse
import subprocess
import sys

from tests.support.compiled import COPY, ROOT


def main() -> int:
    """Play the seeds in both folders at the same time; report the seeds whose traces differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.compiled", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds to play")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    arguments = parser.parse_args()
    seeds = [str(arguments.first + index) for index in range(arguments.seeds)]
    command = [sys.executable, "-m", "tests.simulation.digests", "--unjudged", *seeds]
    players = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) for folder in (ROOT, COPY)]
    traces = [player.communicate()[0].splitlines() for player in players]
    if any(player.returncode for player in players) or {len(lines) for lines in traces} != {len(seeds)}:
        print("A player failed.", file=sys.stderr)
        return 2
    different = [seed for seed, ours, compiled in zip(seeds, *traces, strict=True) if ours != compiled]
    print(f"{len(seeds)} worlds, from seed {arguments.first}: {len(different)} differ when the broker is compiled")
    for seed in different:
        print(f"  python -m tests.simulation --replay {seed}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
