"""Run many seeds, or repeat one: `python -m tests.simulation --seeds 1000`."""

import argparse
import contextlib
import shlex
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from broker_core.types import counted
from tests.simulation import acts
from tests.simulation.broken import BROKEN, first_caught
from tests.simulation.plan import STALE_BROKERS, SWITCHED_OFF
from tests.simulation.share_plan import NOT_IN_SHARE_WORLDS
from tests.simulation.world import Outcome, play
from tests.support.history.format import write_history
from tests.support.simulated.faults import FaultKind, never_occurred

# After this many seeds every kind of fault has occurred; a kind that has not is missing from the plans.
ENOUGH_SEEDS = 200
# The rarest of the injected bugs shows within so many.
_ENOUGH_FOR_A_BUG = 400
_COMMAND = ("python", "-m", "tests.simulation")
_ALL = "all"


class _Worlds(NamedTuple):
    """The kind of worlds that the command line asks for."""

    stale: bool
    shares: bool
    acts: bool
    reads: bool
    copies: bool

    def play(self, seed: int, *, keep_trace: bool = False) -> Outcome:
        """Play one world."""
        if self.scene is not None:
            return acts.play(seed, scene=self.scene, keep_trace=keep_trace)
        return play(seed, keep_trace=keep_trace, stale_brokers=self.stale, shares=self.shares)

    @property
    def scene(self) -> acts.Scene | None:
        """Return the kind of worlds with acts that is chosen, if one is."""
        chosen = (self.acts, acts.WRITING), (self.reads, acts.READING), (self.copies, acts.COPYING)
        return next((scene for is_chosen, scene in chosen if is_chosen), None)

    @property
    def words(self) -> list[str]:
        """Return the options that ask for these worlds."""
        return [f"--{name}" for name, is_chosen in self._asdict().items() if is_chosen]

    @property
    def not_due(self) -> Collection[FaultKind]:
        """Return the kinds of faults that these worlds need not have."""
        if self.scene is not None:
            return frozenset(FaultKind)
        if self.shares:
            return NOT_IN_SHARE_WORLDS
        return frozenset() if self.stale else SWITCHED_OFF


def main(words: Sequence[str] | None = None) -> int:
    """Run the seeds of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, help=f"the number of seeds to run: 100, or at most {ENOUGH_SEEDS} if --broken"
    )
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--replay", type=int, help="run this seed only and print its trace")
    parser.add_argument("--trace", type=Path, help="write the trace of --replay to a file instead")
    parser.add_argument("--history", type=Path, help="write the clients' history of --replay to a file, as JSON lines")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    parser.add_argument(
        "--stale",
        action="store_true",
        default=STALE_BROKERS,
        help="also cut off brokers from the others in worlds with outages",
    )
    parser.add_argument("--shares", action="store_true", help="play worlds of share groups")
    parser.add_argument("--acts", action="store_true", help="play a query that writes, and what is done around it")
    parser.add_argument("--copies", action="store_true", help="play a query that reads and writes, and such acts")
    parser.add_argument("--reads", action="store_true", help="play a query that reads, and what is done around it")
    parser.add_argument(
        "--broken",
        choices=[_ALL, *BROKEN],
        nargs="?",
        const=_ALL,
        metavar="NAME",
        help="inject one known bug into the broker, or each in turn, and print the first seed that "
        f"shows it; NAME is one of: {', '.join(BROKEN)}",
    )
    arguments = parser.parse_args(words)
    worlds = _Worlds(arguments.stale, arguments.shares, arguments.acts, arguments.reads, arguments.copies)
    if arguments.replay is not None:
        if arguments.broken == _ALL:
            parser.error("--replay needs the name of the injected bug: --broken NAME")
        with BROKEN[arguments.broken].breakage() if arguments.broken else contextlib.nullcontext():
            return _replay(arguments.replay, arguments.trace, arguments.history, worlds)
    if arguments.broken is not None:
        names = list(BROKEN) if arguments.broken == _ALL else [arguments.broken]
        seeds = range(arguments.first, arguments.first + (arguments.seeds or _ENOUGH_FOR_A_BUG))
        return int(sum(_catch(name, seeds) for name in names) < len(names))
    return _many(arguments.first, arguments.seeds or 100, worlds, keep_going=arguments.keep_going)


def _replay(seed: int, trace: Path | None, history: Path | None, worlds: _Worlds) -> int:
    outcome = worlds.play(seed, keep_trace=True)
    text = "".join(f"{line}\n" for line in outcome.lines or ())
    if trace is not None:
        trace.write_text(text)
    elif history is None:
        sys.stdout.write(text)
    if history is not None:
        write_history(history, outcome.history.ops)
    print(f"seed {seed}: {outcome.event_count} events, trace {outcome.digest}")
    _print_problems(outcome)
    return 1 if outcome.problems else 0


def _print_problems(outcome: Outcome) -> None:
    for problem in outcome.problems:
        print(f"seed {outcome.seed}: {problem}")


def _catch(name: str, seeds: range) -> bool:
    """Print the first seed that reveals an injected bug; return whether there is one."""
    caught = first_caught(BROKEN[name], seeds)
    if caught is None:
        print(f"{name}: no seed from {seeds.start} to {seeds.stop - 1} shows it")
        return False
    seed, shown = caught
    print(f"{name}: seed {seed} shows it: {shown}")
    print(f"  Replay it with: {shlex.join([*_COMMAND, '--broken', name, '--replay', str(seed)])}", flush=True)
    return True


def _many(first: int, count: int, worlds: _Worlds, *, keep_going: bool) -> int:
    faults: Counter[FaultKind] = Counter()
    failed: list[int] = []
    events = played = 0
    began = time.monotonic()
    for seed in range(first, first + count):
        outcome = worlds.play(seed)
        played += 1
        events += outcome.event_count
        faults.update(outcome.faults.by_kind)
        if outcome.problems:
            failed.append(seed)
            _print_problems(outcome)
            if not keep_going:
                break
        if played % 1_000 == 0:
            print(f"{played} seeds, {len(failed)} failed", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{counted(played, 'seed')} from {first} on in {seconds:.0f} s, {counted(events, 'event')}; "
        f"{len(failed)} failed"
    )
    is_complete = _print_faults(faults, played, worlds.not_due)
    if failed:
        print(
            f"First failing seed: {failed[0]}. Replay it with: "
            f"{shlex.join([*_COMMAND, *worlds.words, '--replay', str(failed[0])])}"
        )
    return int(bool(failed) or not is_complete)


def _print_faults(faults: Counter[FaultKind], played: int, switched_off: Collection[FaultKind] = ()) -> bool:
    """Print how often each kind of fault occurred; return whether none that is due after so many seeds is missing."""
    print("Faults that occurred:")
    for kind in FaultKind:
        print(f"  {faults[kind]:>8}  {kind.value}")
    never = never_occurred(faults, switched_off)
    if not never:
        return True
    print(f"Never occurred: {', '.join(kind.value for kind in never)}")
    if played < ENOUGH_SEEDS:
        return True
    print("Every kind of fault should have occurred by now: tests/simulation/plan.py draws too few of these")
    return False


if __name__ == "__main__":
    sys.exit(main())
