"""The performer of the protocol's asks: each goes to Kafka, to the process's clock, or to its log and metrics."""

import logging
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from spark_eos import failpoints
from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import Runtime, now_ms
from spark_eos.sink.protocol import asks

if TYPE_CHECKING:
    from spark_eos.sink.messages import TaskMessage

Result = TypeVar("Result")
logger = logging.getLogger("spark_eos.sink.protocol")


class HasRuntime(Protocol):
    """A cluster, of whose methods each `KafkaAsk` names one."""

    @property
    def runtime(self) -> Runtime:
        """Return the runtime of the calling process: its clock, randomness and identity."""


class Progress(Protocol):
    """What follows the steps of a commit."""

    def begun(self, step: str) -> None:
        """Record that a step begins."""

    def ended(self, step: str, micro_batch: int) -> None:
        """Record that a step has ended."""

    def begin(self, messages: Sequence["TaskMessage"]) -> None:
        """Record that a commit begins."""

    def decided(self) -> None:
        """Record that the decision is made and its transactions are to be ended."""


class Names(Container[str], Protocol):
    """The names of compared decisions."""

    def add(self, name: str) -> None:
        """Record a name."""


def perform(
    cluster: HasRuntime,
    coroutine: Coroutine[asks.Ask[Any], Any, Result],
    progress: Progress | None = None,
    compared: Names | None = None,
) -> Result:
    """Run a coroutine of the protocol to its end; return its result, or raise its error."""
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                ask = coroutine.send(answer) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer, error = None, None
            try:
                answer = _performed(cluster, ask, progress, compared)
            except BaseException as raised:
                error = raised
    finally:
        # After an interrupt between two asks, the coroutine still runs what it has to run at its end.
        coroutine.close()
        error = None


def _performed(cluster: HasRuntime, ask: asks.Ask[Any], progress: Progress | None, compared: Names | None) -> Any:
    if (local := _LOCAL.get(type(ask))) is not None:
        return local(cluster.runtime, ask)
    if isinstance(ask, asks.KafkaAsk):
        return getattr(cluster, ask.method)(*ask.arguments())
    if isinstance(ask, asks.Compared):
        return compared is not None and ask.name in compared
    if isinstance(ask, asks.NoteCompared):
        return None if compared is None else compared.add(ask.name)
    return None if progress is None else _show(progress, ask)


def _show(progress: Progress, ask: asks.Ask[Any]) -> None:
    match ask:
        case asks.Begun(step):
            progress.begun(step)
        case asks.Ended(step, micro_batch):
            progress.ended(step, micro_batch)
        case asks.Accepted(messages):
            progress.begin(messages)
        case asks.Decided():
            progress.decided()
        case _:
            raise TypeError(f"no performer of {ask}")


_LOCAL: Final[Mapping[type, Callable[[Runtime, Any], Any]]] = {
    asks.Now: lambda runtime, _: now_ms(runtime.clock),
    asks.Monotonic: lambda runtime, _: runtime.clock.monotonic(),
    asks.Sleep: lambda runtime, ask: runtime.clock.sleep(ask.seconds),
    asks.Tell: lambda _, ask: logger.log(ask.level, ask.message, *ask.arguments),
    asks.Count: lambda _, ask: SINK_METRICS.add(ask.name, ask.number),
    asks.Gauge: lambda _, ask: SINK_METRICS.set(ask.name, ask.value),
    asks.Reach: lambda _, ask: failpoints.reach(ask.point, ask.micro_batch),
    asks.ShowMetrics: lambda _, ask: logger.info(
        "micro-batch %d of %s: %s", ask.micro_batch, ask.query, dict(SINK_METRICS.snapshot())
    ),
    asks.StepsOf: lambda _, ask: failpoints.is_armed(ask.point),
}
