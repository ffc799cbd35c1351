"""Play many seeds, or one again: `python -m tests.simulation --seeds 1000`."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from broker_core.simulation.faults import Fault
from tests.history.format import write_history
from tests.simulation.world import Outcome, play


def main() -> int:
    """Play what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--replay", type=int, help="play this one seed and print its trace")
    parser.add_argument("--trace", type=Path, help="write the trace of --replay to a file instead")
    parser.add_argument("--history", type=Path, help="write the clients' history of --replay to a file, as JSON lines")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return _replay(arguments.replay, arguments.trace, arguments.history)
    return _many(arguments.first, arguments.seeds, keep_going=arguments.keep_going)


def _replay(seed: int, trace: Path | None, history: Path | None) -> int:
    outcome = play(seed, keep_trace=True)
    text = "".join(f"{line}\n" for line in outcome.lines or ())
    if trace is not None:
        trace.write_text(text)
    elif history is None:
        sys.stdout.write(text)
    if history is not None:
        write_history(history, outcome.history.ops)
    print(f"seed {seed}: {outcome.event_count} events, trace {outcome.digest}")
    _tell(outcome)
    return 1 if outcome.problems else 0


def _tell(outcome: Outcome) -> None:
    for problem in outcome.problems:
        print(f"seed {outcome.seed}: {problem}")


def _many(first: int, count: int, *, keep_going: bool) -> int:
    faults: Counter[Fault] = Counter()
    failed: list[int] = []
    events = played = 0
    began = time.monotonic()
    for seed in range(first, first + count):
        outcome = play(seed)
        played += 1
        events += outcome.event_count
        faults.update(outcome.faults.by_kind)
        if outcome.problems:
            failed.append(seed)
            _tell(outcome)
            if not keep_going:
                break
        if played % 1_000 == 0:
            print(f"{played} seeds, {len(failed)} failed", flush=True)
    seconds = time.monotonic() - began
    print(f"{played} seeds from {first} on in {seconds:.0f} s, {events} events; {len(failed)} failed")
    print("Faults that struck:")
    for kind in Fault:
        print(f"  {faults[kind]:>8}  {kind.value}")
    if failed:
        print(f"First failing seed: {failed[0]}. Replay it with: python -m tests.simulation --replay {failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
