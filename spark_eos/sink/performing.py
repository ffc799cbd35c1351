"""The performer of the protocol's asks: each goes to Kafka, to the process's clock, or to its log and metrics."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from spark_eos import failpoints
from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import Runtime, now_ms
from spark_eos.sink.protocol import asks

Result = TypeVar("Result")
logger = logging.getLogger("spark_eos.sink.protocol")


class HasRuntime(Protocol):
    """A cluster, of whose methods each `KafkaAsk` names one."""

    @property
    def runtime(self) -> Runtime:
        """Return the runtime of the calling process: its clock, randomness and identity."""


# What the process does about asks that are for neither Kafka nor the runtime.
Handlers: TypeAlias = Mapping[type, Callable[[Any], Any]]


def perform(
    cluster: HasRuntime,
    coroutine: Coroutine[asks.Ask[Any], Any, Result],
    handlers: Handlers | None = None,
) -> Result:
    """Run a coroutine of the protocol to its end; return its result, or raise its error.

    Without handlers, asks that are for neither Kafka nor the runtime are answered with None.
    """
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
                answer = _performed(cluster, ask, handlers)
            except BaseException as raised:
                error = raised
    finally:
        # After an interrupt between two asks, the coroutine still runs what it has to run at its end.
        coroutine.close()
        error = None


def _performed(cluster: HasRuntime, ask: asks.Ask[Any], handlers: Handlers | None) -> Any:
    if (local := _LOCAL.get(type(ask))) is not None:
        return local(cluster.runtime, ask)
    if isinstance(ask, asks.KafkaAsk):
        return getattr(cluster, ask.method)(*ask.arguments())
    if handlers is None:
        return None
    if type(ask) not in handlers:
        raise TypeError(f"no performer of {ask}")
    return handlers[type(ask)](ask)


_LOCAL: Final[Mapping[type, Callable[[Runtime, Any], Any]]] = {
    asks.Now: lambda runtime, _: now_ms(runtime.clock),
    asks.Monotonic: lambda runtime, _: runtime.clock.monotonic(),
    asks.Sleep: lambda runtime, ask: runtime.clock.sleep(ask.seconds),
    asks.Tell: lambda _, ask: logger.log(ask.level, ask.message),
    asks.Count: lambda _, ask: SINK_METRICS.add(ask.name, ask.number),
    asks.Gauge: lambda _, ask: SINK_METRICS.set(ask.name, ask.value),
    asks.Reach: lambda _, ask: failpoints.reach(ask.point, ask.micro_batch),
    asks.StepsOf: lambda _, ask: failpoints.is_armed(ask.point),
}
