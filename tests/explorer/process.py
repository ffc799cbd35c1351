"""The processes of a driver: the protocol's real code, which its inputs determine.

A suspended coroutine cannot be copied. But the protocol is deterministic, so a state is the answers since the process
began, and a copy is a new coroutine that gets the same. Each state is a node of a tree: its parent, and the input
that led from there. Between two calls the driver's own state is compared, and equal states become one node.
"""

from collections.abc import Coroutine, Hashable
from typing import Any, Final, NamedTuple, Protocol

from spark_eos.errors import EosKafkaError, TopicError, UnansweredError
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.answers import FoundRecords, UnstableOffsetsError
from tests.explorer.freezing import Freezer
from tests.explorer.model import DATA, PHASE_MS

# Shorter pauses are counted by the loops that make them. Longer ones end at a time, so they are stretched: each loop
# has a few rounds.
_COUNTED_SECONDS: Final = 0.15
_STRETCH: Final = 100.0


class Circumstances(NamedTuple):
    """What a process reads without asking Kafka: the time of the world, the feature level, absent leaders."""

    phase: int
    level: int
    leaderless: tuple[int, ...] = ()


class Outcome(NamedTuple):
    """The end of a call: the name of the error, or none, its families, and its message."""

    error: str = ""
    families: tuple[str, ...] = ()
    message: str = ""
    value: Any = None


class Driver(Protocol):
    """A driver object of one process and run."""

    @property
    def state(self) -> object:
        """Return what lasts from one call to the next."""

    def call(self, name: str, arguments: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of a call."""


class Clock:
    """The clock of a process: the world's time, plus what the process has slept in the present call."""

    def __init__(self) -> None:
        self.phase = 0
        self.slept_ms = 0.0

    def enter(self, phase: int) -> None:
        """Read the time of the world, which only goes on."""
        if phase != self.phase:
            self.phase, self.slept_ms = phase, 0.0

    @property
    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return self.phase * PHASE_MS + round(self.slept_ms)

    def sleep(self, seconds: float) -> None:
        """Sleep; see `_STRETCH`."""
        self.slept_ms += seconds * 1000 * (1 if seconds < _COUNTED_SECONDS else _STRETCH)


class Input(NamedTuple):
    """One step of a process: a call, an answer or an error, and the circumstances."""

    kind: str
    value: Any
    circumstances: Circumstances


class Node(NamedTuple):
    """One state of a process: what it asks for next, or how its last call ended."""

    parent: int
    input: Input | None
    ask: asks.KafkaAsk[Any] | None
    outcome: Outcome | None
    # The process's time, with which it writes.
    now_ms: int = 0


ROOT: Final = Node(-1, None, None, None)


class Processes:
    """All states of processes that were reached, and the steps between them."""

    def __init__(self, make: "MakeDriver") -> None:
        self._make = make
        self.nodes: list[Node] = []
        self._roots: dict[Hashable, int] = {}
        self._root_names: dict[int, Any] = {}
        self._steps: dict[tuple[int, Input], int] = {}
        self._known: dict[Hashable, int] = {}
        # The thread of the last step, which its next step need not begin again.
        self._live: dict[int, _Life] = {}
        self.replayed = 0

    def root(self, name: Any) -> int:
        """Return a process that did nothing yet; `name` is given to the maker of its driver."""
        if name not in self._roots:
            self._roots[name] = self._add(ROOT)
            self._root_names[self._roots[name]] = name
        return self._roots[name]

    def step(self, node: int, given: Input) -> int:
        """Return the state after an input."""
        key = (node, given)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._stepped(node, given)
        return found

    def history(self, node: int) -> list[Input]:
        """Return the inputs that lead to a state."""
        found: list[Input] = []
        while (each := self.nodes[node]).input is not None:
            found.append(each.input)
            node = each.parent
        return found[::-1]

    def _stepped(self, node: int, given: Input) -> int:
        life = self._live.pop(node, None)
        if life is None:
            life = self._replay(node)
        ask, outcome = life.take(given)
        made = Node(node, given, ask, outcome, life.clock.now_ms)
        at = self._known.setdefault(life.image(self._root_of(node), ask, outcome), len(self.nodes))
        if at == len(self.nodes):
            self._add(made)
        if len(self._live) > 2_000:
            self._live.clear()
        # A state that was reached before by another way may have lost its life to a step from there.
        self._live[at] = life
        return at

    def _replay(self, node: int) -> "_Life":
        self.replayed += 1
        life = _Life(self._make, self._root_names[self._root_of(node)])
        for each in self.history(node):
            life.take(each)
        return life

    def _root_of(self, node: int) -> int:
        while self.nodes[node].parent >= 0:
            node = self.nodes[node].parent
        return node

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


class MakeDriver(Protocol):
    """The maker of a driver object."""

    def __call__(self, name: Any) -> Driver:
        """Return a driver that has done nothing yet."""


class _Life:
    """A driver object with the call that it is in."""

    def __init__(self, make: MakeDriver, name: Any) -> None:
        self.clock = Clock()
        self.driver = make(name)
        self._call: Coroutine[Any, Any, Any] | None = None
        self._ask: asks.KafkaAsk[Any] | None = None

    def take(self, given: Input) -> tuple[asks.KafkaAsk[Any] | None, Outcome | None]:
        """Take an input; return the next ask, or how the call ended."""
        self.clock.enter(given.circumstances.phase)
        try:
            if given.kind == "call":
                self.clock.slept_ms = 0.0
                name, arguments = given.value
                self._call = self.driver.call(name, arguments)
                ask = self._call.send(None)
            elif given.kind == "raise":
                assert self._call is not None
                ask = self._call.throw(_error(given.value))
            else:
                assert self._call is not None and self._ask is not None
                ask = self._call.send(given_to(self._ask, given.value))
            while (answer := self._own_answer(ask, given.circumstances)) is not _NOT_OWN:
                assert self._call is not None
                ask = self._call.send(answer)
        except StopIteration as end:
            self._call = None
            return None, Outcome(value=end.value)
        except Exception as error:
            self._call = None
            return None, _outcome(error)
        self._ask = ask
        return ask, None

    def image(self, root: int, ask: asks.KafkaAsk[Any] | None, outcome: Outcome | None) -> Hashable:
        """Return what tells this state from others: where the code is, and all that it holds."""
        freezer = Freezer()
        driver = freezer.freeze(self.driver.state)
        if outcome is not None:
            return root, outcome, driver
        assert self._call is not None
        clock = (self.clock.phase, self.clock.slept_ms)
        return root, clock, driver, freezer.freeze(self._call)

    def _own_answer(self, ask: asks.Ask[Any], circumstances: Circumstances) -> Any:
        """Return the answer to an ask that Kafka need not answer."""
        match ask:
            case asks.Now():
                return self.clock.now_ms
            case asks.Monotonic():
                return self.clock.now_ms / 1000
            case asks.Sleep():
                return self.clock.sleep(ask.seconds)
            case asks.StepsOf() | asks.Compared():
                return False
            case asks.TransactionVersion():
                return circumstances.level
            case asks.PartitionCount():
                return 1
            case asks.PartitionCounts():
                return dict.fromkeys(ask.topics, 1)
            case asks.BeginsWith():
                return False
            case asks.LeaderlessPartitions():
                return {DATA: circumstances.leaderless}
            case asks.KafkaAsk():
                return _NOT_OWN
        return None


_NOT_OWN: Final = object()


def given_to(ask: asks.KafkaAsk[Any], answer: Any) -> Any:
    """Return an answer of the model in the form that the protocol expects."""
    match ask:
        case asks.DescribeTransactions():
            return {each.transactional_id: each for each in answer}
        case asks.FindRecords():
            records, unended, end = answer
            return FoundRecords(records, unended, dict.fromkeys(ask.starts, end))
        case asks.Views() | asks.UnstableEnds() | asks.UsedIds() | asks.EndTransactions():
            return dict(answer)
    return answer


def _error(kind: str) -> EosKafkaError:
    match kind:
        case "unstable":
            return UnstableOffsetsError("A group has offsets in an open transaction")
        case "unanswered":
            return UnansweredError("No response")
        case "topic":
            return TopicError("No such topic")
    raise AssertionError(kind)


def _outcome(error: Exception) -> Outcome:
    families = tuple(each.__name__ for each in type(error).__mro__[:-3])
    return Outcome(type(error).__name__, families, str(getattr(error, "happened", error))[:300])
