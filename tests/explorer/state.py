"""The state of a world: drivers of one query, Spark's checkpoint, the cluster, and what is on its way."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from broker_core.types import ProducerIdentity
from spark_eos.open_transaction import EndAnswer
from spark_eos.sink.decision import Decision, read_part
from spark_eos.sink.naming import TaskId, is_decision_of
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import asks
from tests.explorer.model import GROUPS, PREFIXES, QUERY, Ending, Id, Model, Past
from tests.explorer.process import Circumstances, Outcome

NO_PAST: Final = Past()
# In place of the number of a run.
OPERATOR: Final = -1


class Bounds(NamedTuple):
    """The size of a world.

    `tasks` have rows, and one more has none if `has_empty`. `writes` is the number of writes under one name.
    """

    tasks: int = 2
    drivers: int = 2
    faults: int = 1
    micro_batches: int = 2
    processes: int = 1
    level: int = 2
    # How many values `transactionalIdPrefix` has, one run after the other; the last one stays.
    prefixes: int = 1
    has_empty: bool = False
    # The first micro-batches, which have no rows.
    empty_micro_batches: int = 0
    writes: int = 1
    has_zombies: bool = True
    zombies_after: int = 0
    # How often another run goes on while the one before is not over; None for any number.
    switches: int | None = None
    policy: str = "fail"
    # Whether an operator completes or aborts the newest decision, once.
    has_operator: bool = False
    kinds: frozenset[str] = frozenset()


class Call(NamedTuple):
    """What a process has heard in the present call, and the ends of transactions that are on their way.

    `heard` has the ids of the transactions that it asked about, with the time; `lost` has those that it knows lost.
    """

    past: Past = NO_PAST
    heard: frozenset[tuple[str, int]] = frozenset()
    lost: frozenset[tuple[str, ProducerIdentity]] = frozenset()
    # How often the output topic had been made again when it looked at the topic.
    remade: int | None = None
    # Whether it has taken the driver's id over, and how many decisions there were when it first looked.
    has_taken_over: bool = False
    at_first_look: int | None = None
    # Whether all brokers have named the group's coordinator, which then knows what was decided before.
    has_agreed: bool = False
    # Whether a later run had superseded the process when the call began, or when it last looked.
    is_superseded: bool = False
    unsent: tuple[Ending, ...] = ()
    answers: tuple[tuple[str, EndAnswer], ...] = ()


class App(NamedTuple):
    """One run of the query: its driver's processes, and where Spark is with it."""

    status: str
    micro_batch: int
    nodes: tuple[int, ...]
    kind: int = 0
    write: int = 0
    at: int = 0
    call: Call = Call()
    messages: tuple[Any, ...] = ()
    # The processes that have owned the driver's id, and those that a later run's decision has superseded.
    owners: frozenset[int] = frozenset()
    superseded: frozenset[int] = frozenset()
    has_decided: bool = False
    reason: Outcome | None = None

    @property
    def node(self) -> int:
        """Return the state of the process that is called."""
        return self.nodes[self.at]

    @property
    def marks(self) -> list[tuple[int, bool, bool]]:
        """Return what tells each process from the others."""
        return [(node, at in self.owners, at in self.superseded) for at, node in enumerate(self.nodes)]

    def between_calls(self) -> "App":
        """Return the run with its processes in the order of their marks: the others are mirror images."""
        marks = sorted(self.marks)
        return self._replace(
            at=0,
            nodes=tuple(node for node, _, _ in marks),
            owners=frozenset(at for at, (_, is_owner, _) in enumerate(marks) if is_owner),
            superseded=frozenset(at for at, (_, _, is_superseded) in enumerate(marks) if is_superseded),
        )

    @property
    def is_over(self) -> bool:
        """Return whether the run does nothing more."""
        return self.status in ("done", "stopped", "dead")


class World(NamedTuple):
    """Everything that decides what may happen next; `reported` has the rows of the micro-batches in the checkpoint."""

    model: Model
    apps: tuple[App, ...]
    faults: int
    phase: int = 0
    reported: tuple[int, ...] = ()
    late: frozenset[Any] = frozenset()
    used: frozenset[str] = frozenset()
    # The run that goes on, and how often another one may take its turn, where that is bounded.
    turn: int = 0
    switches: int = 0
    # The earlier states of coordinators, which one that is cut off may answer.
    past: frozenset[tuple[str, Any]] = frozenset()
    operator: App | None = None

    @property
    def circumstances(self) -> Circumstances:
        """Return what processes read without asking Kafka."""
        return Circumstances(self.phase, self.model.level, (0,) if self.model.is_away else ())


class Step(NamedTuple):
    """One thing that may happen: in words, whether it is a fault, whether it may fail to happen, and what is wrong."""

    saying: tuple[Any, ...]
    world: World
    is_fault: bool = False
    is_optional: bool = False
    wrong: str = ""

    @property
    def words(self) -> str:
        """Return the step as a sentence."""
        text = " ".join(str(each) for each in self.saying if each != "")
        return text.replace(QUERY, "QUERY").replace(f"{PREFIXES[0]}.QUERY.", "")


def run_name(number: int) -> str:
    """Return the name of a run."""
    return f"r{number}" if number != OPERATOR else "the operator"


def prefix_of(run: int, bounds: Bounds) -> str:
    """Return the `transactionalIdPrefix` of a run."""
    return PREFIXES[min(run, bounds.prefixes - 1)]


def task_id(run: int, split: int, prefix: str = PREFIXES[0], elections: int = 0) -> str:
    """Return the transactional id that the tasks of one split use in a run after some elections."""
    return str(TaskId(prefix, QUERY, run_name(run), f"w{elections or ''}", split))


@lru_cache(maxsize=100_000)
def decided(value: bytes) -> Decision:
    """Return a decision."""
    return read_part(value, "the model").decision


@lru_cache(maxsize=100_000)
def decisions_of(model: Model) -> tuple[Decision, ...]:
    """Return the decisions that were made, in their order in the log."""
    made = (each for each in model.decisions if each.is_committed and is_decision_of(each.key, QUERY))
    return tuple(decided(each.value) for each in made if each.value is not None)


@lru_cache(maxsize=100_000)
def fate(model: Model, transaction: PreparedTransaction) -> bool | None:
    """Return whether a transaction is committed, lost (False) or open."""
    logs = (model.data, model.gone) if model.gone else (model.data,)
    rows = (row for log in logs for row in log[transaction.split])
    return next(row.is_committed for row in rows if row.identity == transaction.producer)


def is_gone(model: Model, transaction: PreparedTransaction) -> bool:
    """Return whether the rows of a transaction went with a topic that was deleted."""
    return bool(model.gone) and any(row.identity == transaction.producer for row in model.gone[transaction.split])


def with_node(app: App, node: int) -> App:
    return app._replace(nodes=(*app.nodes[: app.at], node, *app.nodes[app.at + 1 :]))


def with_app(world: World, at: int, app: App) -> World:
    if at == OPERATOR:
        return world._replace(operator=app)
    return world._replace(apps=(*world.apps[:at], app, *world.apps[at + 1 :]))


def spend(world: World, kind: str) -> World:
    faults = world.faults - 1
    past = world.past if faults else frozenset[tuple[str, Any]]()
    return world._replace(faults=faults, used=world.used | {kind}, past=past)


def cleared(world: World, model: Model, *_: str) -> World:
    """Return the world with another model; what coordinators answered before is kept while one may be cut off."""
    past = world.past
    if world.faults:
        old, new = dict(world.model.ids), dict(model.ids)
        past |= {(name, old.get(name)) for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        before, after = dict(world.model.pointers), dict(model.pointers)
        past |= {(group, before.get(group)) for group in GROUPS.values() if before.get(group) != after.get(group)}
    return world._replace(model=model, past=past)


def with_initialized(world: World, before: Model) -> World:
    """Return the world in which coordinators remember how tasks initialized their ids before they wrote."""
    if not world.faults:
        return world
    fresh = {
        (name, Id(each.identity))
        for name, each in world.model.ids
        if (known := before.id(name)) is None or known.identity != each.identity
    }
    return world._replace(past=world.past | fresh)


def brief(value: Any) -> tuple[Any, ...]:
    """Return words for an ask."""
    match value:
        case Ending():
            return ("commit" if value.commit else "abort", value.transactional_id, *value.opened.producer)
        case asks.DescribeTransactions():
            return ("describe", *value.transactional_ids)
        case asks.StartDecision() | asks.AppendDecision():
            return (type(value).__name__, value.write.metadata)
        case asks.EndDecision():
            return ("commit the decision" if value.commit else "abort the decision", value.write.metadata)
        case Past():
            return (value,)
    return (type(value).__name__,)
