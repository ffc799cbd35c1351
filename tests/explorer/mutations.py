"""Single mutations of the protocol, each of which the explorer must find: this shows that it can see.

`python -m tests.explorer.mutations` tries all, or those that are named.
"""

import importlib.util
import multiprocessing
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "spark_eos.sink.protocol"
# Processor time for one world.
_SECONDS: Final = 30.0


class Mutation(NamedTuple):
    """A text of one module that is replaced, and the worlds in which the difference shows, the cheapest first."""

    name: str
    module: str
    old: str
    new: str
    worlds: str


_OLD_COMMITTED: Final = "(TransactionState.COMPLETE_COMMIT, False, 0): Fate.COMMITTED"
_NEW_COMMITTED: Final = "(TransactionState.COMPLETE_COMMIT, True, 1): Fate.COMMITTED"
_OLD_LOST: Final = "(TransactionState.COMPLETE_ABORT, False, 0): Fate.LOST"
_NEW_LOST: Final = "(TransactionState.COMPLETE_ABORT, True, 1): Fate.LOST"
_OLD_OPEN: Final = "(TransactionState.ONGOING, False, 0): Fate.OPEN"
_NEW_OPEN: Final = "(TransactionState.ONGOING, True, 0): Fate.OPEN"

MUTATIONS: Final = (
    # Ownership.
    Mutation("woken driver goes on", "ownership", "and self.state.has_taken_over\n", "and False\n", "woken"),
    Mutation(
        "named driver goes on",
        "ownership",
        "if newest is not None and self.run in newest.superseded:",
        "if False:",
        "named woken",
    ),
    Mutation(
        "first decision looks at nothing",
        "ownership",
        "self._known = Known(None if newest is None else newest.rank) if self.may_be_decided else None",
        "self._known = None",
        "stale",
    ),
    Mutation(
        "nothing is examined before a take-over", "ownership", "await self.examine(before)", "pass", "woken stale"
    ),
    Mutation(
        "second write goes on",
        "ownership",
        "if decided == self.micro_batch:\n            return Holding.USED_HERE\n",
        "",
        "writes",
    ),
    Mutation(
        "own outdated look stops the driver",
        "ownership",
        "and not (held is not None and await self.log.is_kept(held))",
        "",
        "stale processes",
    ),
    Mutation(
        "an epoch serves twice",
        "ownership",
        "return Holding.SPENT if identity.spent else Holding.READY",
        "return Holding.READY",
        "old",
    ),
    Mutation(
        "without a trace, on it goes",
        "ownership",
        "(Holding.UNUSED, False): _NO_TRACE",
        '(Holding.UNUSED, False): CourseRule(Course.GO_ON, "")',
        "woken",
    ),
    Mutation(
        "another decided, on it goes",
        "ownership",
        "(Holding.READY, True): _ANOTHER_DECIDED",
        '(Holding.READY, True): CourseRule(Course.GO_ON, "")',
        "processes woken",
    ),
    Mutation(
        "sibling is a newer driver",
        "ownership",
        "(True, True, False): Fenced.BEHIND",
        "(True, True, False): Fenced.NEWER_DRIVER",
        "processes",
    ),
    Mutation(
        "newer run is a late request",
        "ownership",
        "(True, False, False): Fenced.SUPERSEDED",
        "(True, False, False): Fenced.LATE",
        "woken",
    ),
    Mutation(
        "own late request stops the driver",
        "ownership",
        "(False, False, True): Fenced.LATE",
        "(False, False, True): Fenced.NEWER_DRIVER",
        "unanswered",
    ),
    Mutation(
        "failed decision is not remembered",
        "ownership",
        "self.memory.note(identity=None, attempted=identity)",
        "self.memory.note(identity=identity)",
        "unanswered",
    ),
    # The decision log.
    Mutation(
        "renewal asks nothing",
        "decision_log",
        "if described is not None and described.identity != expected:",
        "if False:",
        "old woken",
    ),
    Mutation(
        "second look sees nothing",
        "decision_log",
        "if pointer is not None and (known.rank is None or pointer.rank > known.rank):",
        "if False:",
        "stale",
    ),
    Mutation(
        "nothing is verified", "decision_log", "write = write._replace(decide_by_ms=await verify())", "pass", "lost"
    ),
    Mutation("a late decision is made", "decision_log", "if late_ms > 0:", "if False:", "lost"),
    Mutation(
        "failed decision stays open",
        "decision_log",
        "await asks.EndDecision(write, commit=False)\n",
        "pass\n",
        "lost unanswered",
    ),
    Mutation(
        "no answer means decided",
        "decision_log",
        "answer.code is ErrorCode.NONE or await self._is_newest(decision)",
        "answer.code in (ErrorCode.NONE, None) or await self._is_newest(decision)",
        "unanswered",
    ),
    Mutation(
        "no answer means undecided",
        "decision_log",
        "answer.code is ErrorCode.NONE or await self._is_newest(decision)",
        "answer.code is ErrorCode.NONE",
        "unanswered",
    ),
    Mutation(
        "late end is not prevented",
        "decision_log",
        "            await self._end_late(decision, driver)\n",
        "            pass\n",
        "unanswered lost",
    ),
    Mutation(
        "any decision is the own one",
        "decision_log",
        "(newest.run, newest.rank) == (decision.run, decision.rank)",
        "newest.rank == decision.rank",
        "woken",
    ),
    Mutation(
        "open decision is waited for",
        "decision_log",
        "description.state is TransactionState.ONGOING",
        "description.state is TransactionState.EMPTY",
        "deaths",
    ),
    # Answers from the past.
    Mutation("Empty is believed", "descriptions", "(TransactionState.EMPTY, True): _INITIALISED,", "", "stale"),
    Mutation("old Empty is believed", "descriptions", "(TransactionState.EMPTY, False): _INITIALISED,", "", "oldstale"),
    Mutation(
        "early commit is believed",
        "descriptions",
        "(TransactionState.COMPLETE_COMMIT, True): _COMMITTED_BEFORE,",
        "",
        "stale",
    ),
    Mutation(
        "lower epoch is believed",
        "descriptions",
        "if description.identity.producer_epoch < begun.producer_epoch:",
        "if False:",
        "stale oldstale",
    ),
    Mutation(
        "unknown id is believed",
        "descriptions",
        "return _UNKNOWN if now_ms < transaction.started_at_ms + transaction.timeout_ms else None",
        "return None",
        "stale",
    ),
    Mutation(
        "lower epoch of the driver is believed",
        "descriptions",
        "return _LOWER_EPOCH if description.identity.producer_epoch < held.producer_epoch else None",
        "return None",
        "stale oldstale",
    ),
    # Verification.
    Mutation(
        "ended transaction is decided on",
        "verification",
        "if description.state is not TransactionState.ONGOING or description.identity != identity:",
        "if False:",
        "lost",
    ),
    Mutation(
        "ended one of any state is decided on",
        "verification",
        "description.state is not TransactionState.ONGOING or description.identity != identity",
        "description.identity != identity",
        "oldlost",
    ),
    Mutation(
        "open one of any epoch is decided on",
        "verification",
        "description.state is not TransactionState.ONGOING or description.identity != identity",
        "description.state is not TransactionState.ONGOING",
        "lost",
    ),
    Mutation(
        "passed timeout is decided on",
        "verification",
        "if left_ms >= margin_ms(description.timeout_ms):",
        "if True:",
        "lost",
    ),
    # The commit.
    Mutation(
        "commit after a pause without a look",
        "commit",
        "is_open = await Now() < limits.decide_by_ms",
        "is_open = True",
        "lost",
    ),
    Mutation("lost decision is reported committed", "completion", "if not settled.took_effect:", "if False:", "lost"),
    Mutation("refused end is a success", "completion", "return len(committed) == len(prepared)", "return True", "lost"),
    Mutation(
        "newer micro-batch is passed over",
        "commit",
        "if newest.micro_batch > micro_batch:\n            raise rolled_back_error(newest, micro_batch)\n        if newest.run",
        "if newest.run",
        "woken",
    ),
    Mutation(
        "other rows are skipped",
        "commit",
        "        await self._check_rows(newest, messages, by_task=False)",
        "        pass",
        "rows",
    ),
    Mutation(
        "tasks that skipped are not heard",
        "commit",
        "            if skipped:\n",
        "            if False:\n",
        "stale lost",
    ),
    Mutation(
        "lost tasks are written with any policy",
        "commit",
        "or self.policy is not OnLostTransaction.REWRITE",
        "",
        "lost",
    ),
    Mutation(
        "kept ones are written again",
        "commit",
        "transactions=(*kept, *prepared)",
        "transactions=(*prepared,)",
        "rewrite",
    ),
    Mutation("surplus of a rewrite is decided", "commit", "if transaction.split not in splits]", "]", "rewrite"),
    Mutation(
        "nothing is swept",
        "commit",
        "if dropped or self.memory.state.sweeps.is_due(await Monotonic()):",
        "if False:",
        "deaths rewrite",
    ),
    Mutation(
        "own surplus is left open", "commit", "await self._orphans(micro_batch).sweep(runs, prepared)", "pass", "missed"
    ),
    Mutation(
        "attempts are not counted",
        "commit",
        "attempt=settled.decision.attempt + 1 if settled is not None else 1",
        "attempt=1",
        "lost",
    ),
    # Settlement: the rows of its tables.
    Mutation("fate: open is lost", "settlement", _NEW_OPEN, _NEW_OPEN.replace("OPEN", "LOST"), "deaths"),
    Mutation("fate: open is lost, V1", "settlement", _OLD_OPEN, _OLD_OPEN.replace("OPEN", "LOST"), "olddeaths"),
    Mutation("fate: open is committed", "settlement", _NEW_OPEN, _NEW_OPEN.replace("OPEN", "COMMITTED"), "deaths"),
    Mutation(
        "fate: open is committed, V1", "settlement", _OLD_OPEN, _OLD_OPEN.replace("OPEN", "COMMITTED"), "olddeaths"
    ),
    Mutation(
        "fate: committed is lost",
        "settlement",
        _NEW_COMMITTED,
        _NEW_COMMITTED.replace("Fate.COMMITTED", "Fate.LOST"),
        "deaths",
    ),
    Mutation(
        "fate: committed is lost, V1",
        "settlement",
        _OLD_COMMITTED,
        _OLD_COMMITTED.replace("Fate.COMMITTED", "Fate.LOST"),
        "olddeaths",
    ),
    Mutation("fate: lost is committed", "settlement", _NEW_LOST, _NEW_LOST.replace("LOST", "COMMITTED"), "lost"),
    Mutation("fate: lost is committed, V1", "settlement", _OLD_LOST, _OLD_LOST.replace("LOST", "COMMITTED"), "oldlost"),
    Mutation(
        "log is not asked after a loss",
        "settlement",
        "if fate is None or fate is Fate.LOST]",
        "if fate is None]",
        "level",
    ),
    Mutation(
        "log overrides nothing",
        "settlement",
        "if described is None or logged is Fate.COMMITTED:",
        "if described is None:",
        "level",
    ),
    Mutation(
        "part visible: stop",
        "action_table",
        "(_OPEN, _COMMITTED),\n        SettlementAction.COMMIT",
        "(_OPEN, _COMMITTED),\n        SettlementAction.STOP",
        "deaths",
    ),
    Mutation(
        "part visible: abort",
        "action_table",
        "(_OPEN, _COMMITTED),\n        SettlementAction.COMMIT",
        "(_OPEN, _COMMITTED),\n        SettlementAction.ABORT",
        "deaths",
    ),
    Mutation(
        "part lost: commit",
        "action_table",
        "(_OPEN, _LOST),\n        SettlementAction.ABORT",
        "(_OPEN, _LOST),\n        SettlementAction.COMMIT",
        "lost",
    ),
    Mutation(
        "all open: abort",
        "action_table",
        "_rule((_OPEN,), SettlementAction.COMMIT,",
        "_rule((_OPEN,), SettlementAction.ABORT,",
        "deaths",
    ),
    Mutation(
        "part visible, part lost: write all again",
        "action_table",
        "(_COMMITTED, _LOST),\n        SettlementAction.WRITE_LOST",
        "(_COMMITTED, _LOST),\n        SettlementAction.WRITE_AGAIN",
        "lost",
    ),
    Mutation(
        "all lost: closed",
        "action_table",
        "(_LOST,),\n        SettlementAction.WRITE_AGAIN",
        "(_LOST,),\n        SettlementAction.CLOSED",
        "lost",
    ),
    Mutation(
        "all visible: write again",
        "action_table",
        '_rule((), SettlementAction.CLOSED, "all that',
        '_rule((), SettlementAction.WRITE_AGAIN, "all that',
        "deaths",
    ),
    Mutation(
        "hidden beside open: commit",
        "action_table",
        "(_OPEN, _HIDDEN),\n        SettlementAction.WAIT",
        "(_OPEN, _HIDDEN),\n        SettlementAction.COMMIT",
        "hidden",
    ),
    Mutation(
        "hidden: closed",
        "action_table",
        "_rule((_HIDDEN,), SettlementAction.WAIT,",
        "_rule((_HIDDEN,), SettlementAction.CLOSED,",
        "hidden",
    ),
    Mutation(
        "unknown beside open: commit",
        "action_table",
        "(_OPEN, _UNKNOWN),\n        SettlementAction.STOP",
        "(_OPEN, _UNKNOWN),\n        SettlementAction.COMMIT",
        "hidden",
    ),
    Mutation(
        "unknown: write again",
        "action_table",
        "_rule((_UNKNOWN,), SettlementAction.STOP,",
        "_rule((_UNKNOWN,), SettlementAction.WRITE_AGAIN,",
        "hidden",
    ),
    # Sweeps, retries and names.
    Mutation(
        "decided ones are swept",
        "orphan_sweep",
        "kept = names_of(await newest()) if candidates else set()",
        "kept = set()",
        "unanswered lost",
    ),
    Mutation(
        "other runs are never swept",
        "orphan_sweep",
        "if run_of(each.transactional_id) in scope.runs:",
        "if False:",
        "deaths",
    ),
    Mutation(
        "any run is swept",
        "orphan_sweep",
        "return scope.older_than_ms is not None and 0 <= each.started_at_ms < scope.older_than_ms",
        "return True",
        "woken",
    ),
    Mutation(
        "nothing is worth another attempt",
        "retry_policy",
        "return isinstance(error, UndecidedError | UnansweredError | UnreachableError | UnstableOffsetsError)",
        "return False",
        "unanswered",
    ),
    Mutation(
        "no run is superseded",
        "superseded_runs",
        "decided = () if newest is None else (newest.run,)",
        "decided = ()",
        "named",
    ),
    Mutation(
        "an identity is never spent", "driver_identity", "spent = following is None or", "spent = False and", "old"
    ),
    Mutation(
        "another epoch is kept",
        "driver_identity",
        "if found.state in _ABORTED:",
        "return True\n    if found.state in _ABORTED:",
        "woken unanswered",
    ),
    Mutation(
        "own timeout is another driver",
        "driver_identity",
        "return bumps in (0, 1, 2)",
        "return bumps == 0",
        "unanswered lost",
    ),
)


class _Finder(MetaPathFinder, SourceLoader):
    """The finder of one module, with another source."""

    def __init__(self, mutation: Mutation) -> None:
        self._name = f"{PACKAGE}.{mutation.module}"
        self._path = ROOT.joinpath(*self._name.split(".")).with_suffix(".py")
        self._source = mutated(mutation)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module that is mutated, and no other."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def get_filename(self, fullname: str) -> str:
        """Return the file of the original."""
        return str(self._path)

    def get_data(self, path: str) -> bytes:
        """Return the mutated source."""
        return self._source.encode()


def mutated(mutation: Mutation) -> str:
    """Return the source of a mutated module; raise if it has not exactly one place for the mutation."""
    source = ROOT.joinpath(*PACKAGE.split("."), f"{mutation.module}.py").read_text()
    if source.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.module} has {source.count(mutation.old)} times {mutation.old!r}")
    return source.replace(mutation.old, mutation.new)


class Hunt(NamedTuple):
    """What became of a mutation: what is wrong, in which world, in how many steps; or nothing."""

    mutation: str
    wrong: str
    world: str
    steps: int
    states: int


def hunt(mutation: Mutation) -> Hunt:
    """Explore with a mutated protocol; this process must not use the protocol for anything else."""
    for name in list(sys.modules):
        if name.startswith(("spark_eos", "tests.explorer")) and name != __name__:
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder(mutation))
    from tests.explorer.search import explore
    from tests.explorer.worlds import FOR_MUTATIONS

    states = 0
    for world in mutation.worlds.split():
        found = explore(FOR_MUTATIONS[world], _SECONDS)
        states += found.states
        if found.wrong:
            return Hunt(mutation.name, found.wrong, world, len(found.numbers), states)
    return Hunt(mutation.name, "", "", 0, states)


def hunt_all(mutations: Sequence[Mutation], cores: int = 2) -> list[Hunt]:
    """Explore with each of some mutations, each in a process of its own."""
    with multiprocessing.get_context("fork").Pool(cores, maxtasksperchild=1) as pool:
        return pool.map(hunt, mutations, chunksize=1)


def main(names: Sequence[str]) -> int:
    """Try mutations; return how many were not found."""
    chosen = [each for each in MUTATIONS if not names or each.name in names]
    missed = 0
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for each in pool.imap_unordered(hunt, chosen, chunksize=1):
            missed += not each.wrong
            found = f"{each.world}, {each.steps} steps: {each.wrong}" if each.wrong else "NOT FOUND"
            print(f"{each.mutation} ({each.states} states): {found}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
