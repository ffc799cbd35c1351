"""Faults for single requests: before they are handled, after they took effect, or between prepare and markers.

A fault applies to a request at one of three moments. Each moment offers the same outcomes: continue, answer an error,
drop the request or response, close the connection. So one implementation of an action serves all three.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, Protocol, Self, TypedDict, get_args

from broker_core.broker.apis import APIS, SERVED, check_api, check_criteria
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.broker.request_log import RequestLog, RequestSeen, is_refusal
from broker_core.errors import ErrorCode
from broker_core.types import Frame, at_once, check_number, check_text, check_whole, counted
from broker_core.wire.api_names import ApiName
from broker_core.wire.error_responses import error_response
from broker_core.wire.framing import Request, Response
from broker_core.wire.served import ServedApi

logger = logging.getLogger(__name__)

Moment = Literal["before", "after_apply", "mid"]
BEFORE: Final = "before"
AFTER_APPLY: Final = "after_apply"
MID: Final = "mid"
_MOMENTS: Final[tuple[str, ...]] = get_args(Moment)
# The criteria that can match a marker; it has no client.
_OF_MARKERS: Final = frozenset({"transactional_id", "topic", "partition", "broker"})
_WHOLE_NUMBERS: Final = frozenset({"nth", "times", "version", "broker", "partition"})
_LOOK_AGAIN_S: Final = 0.005
# The error that stands for a partition leader that does not answer its coordinator.
_LOST: Final = ErrorCode.NETWORK_EXCEPTION


class Crashed(BaseException):
    """The crash of all brokers; a `BaseException`, so that no error handler continues."""


class Flag(Protocol):
    """The event that releases a held request, such as a `threading.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class InterceptedRequest:
    """A request that a fault applies to, with its possible outcomes."""

    seen: RequestSeen
    go_on: Callable[[], None]
    refuse: Callable[[ErrorCode], None]
    lose: Callable[[], None]
    cut: Callable[[], None]
    later: Callable[[float, Callable[[], None]], None]
    throttle: Callable[[int], None]


@dataclass(frozen=True)
class Error:
    """An error response, in the form of the request's API and version.

    `code` is a name, a number or an `ErrorCode`. With `when="after_apply"` the request takes effect all the same;
    with "mid" it is the partition leader's answer to the coordinator.
    """

    code: ErrorCode | str | int

    def __post_init__(self) -> None:
        if isinstance(self.code, str) and self.code not in ErrorCode.__members__:
            near = get_close_matches(self.code.upper(), ErrorCode.__members__, n=1) or ["NOT_COORDINATOR"]
            raise ValueError(f"there is no error {self.code!r}; codes are Kafka's, such as {near[0]}")
        code = ErrorCode[self.code] if isinstance(self.code, str) else ErrorCode(self.code)
        if code is ErrorCode.NONE:
            raise ValueError("NONE is no error: the client would take a request for done that never was; see Drop")
        object.__setattr__(self, "code", code)


@dataclass(frozen=True)
class Delay:
    """A delay in seconds of real time, even if the broker's clock is virtual."""

    seconds: float

    def __post_init__(self) -> None:
        check_number("Delay.seconds", self.seconds)
        if self.seconds < 0:
            raise ValueError(f"Delay({self.seconds}): expected 0 or more seconds")


@dataclass(frozen=True)
class Drop:
    """The loss of the request (before) or of its response (after_apply); the client waits until its own timeout.

    With "mid" the marker is lost on the way to the partition's leader; the coordinator retries.
    """


@dataclass(frozen=True)
class Disconnect:
    """A closed connection instead of the handling of a request (before) or of its response (after_apply).

    With "mid" the connection from the coordinator to the partition's leader is closed, which is the same as `Drop`.
    """


@dataclass(frozen=True)
class Hold:
    """A delay until an event is set, such as a `threading.Event`."""

    event: Flag

    def __post_init__(self) -> None:
        if not callable(getattr(self.event, "is_set", None)):
            raise TypeError(f"Hold({self.event!r}): expected an event with is_set, such as threading.Event()")


@dataclass(frozen=True)
class Throttle:
    """A quota violation: the answer has `throttle_time_ms`, and the client's next request waits that many seconds.

    The broker's clock measures the time. A quota that throttles the client for longer still applies.
    """

    seconds: float

    def __post_init__(self) -> None:
        check_number("Throttle.seconds", self.seconds)
        # The answer has the time in milliseconds, as an int32.
        if not 0 <= self.seconds * 1000 < 2**31:
            raise ValueError(f"Throttle({self.seconds}): expected from 0 to {2**31 // 1000} seconds")


class Wanted(TypedDict, total=False):
    """The requests that a fault applies to; `EmbeddedBroker.fault` describes them."""

    api: ApiName | None
    times: int | None
    nth: int | None
    version: int | None
    client_id: str | None
    principal: str | None
    broker: int | None
    topic: str | None
    partition: int | None
    group: str | None
    transactional_id: str | None


_KINDS: Final = (Error, Delay, Drop, Disconnect, Hold, Throttle)
Action = Error | Delay | Drop | Disconnect | Hold | Throttle | Callable[[RequestSeen], object]


class Fault:
    """A fault for the requests that match; returned by `EmbeddedBroker.fault`.

    `hits` counts the requests it was applied to, `matched` all requests that match its criteria. It ends with
    `remove()`, at the end of a `with` block, or after its last hit.

    A request whose function raises loses its connection, as with `Disconnect`. `remove()`, the end of the block, and
    the close of the broker raise the first of these errors, once. If the block has an error, that is raised, and the
    function's is a note of it.
    """

    def __init__(
        self,
        remove: "Callable[[Fault], BaseException | None]",
        *,
        api: ApiName | None,
        when: Moment,
        action: Action,
        times: int | None,
        nth: int | None,
        served: Mapping[int, ServedApi] = SERVED,
        **wanted: object,
    ) -> None:
        self.api, self.when, self.action = api, when, action
        self.hits = self.matched = 0
        self._wanted = {name: value for name, value in wanted.items() if value is not None}
        self._nth = 1 if nth is None else nth
        self._times = 1 if times is None and nth is not None else times
        self._remove = remove
        self._check(served)

    def _check(self, served: Mapping[int, ServedApi]) -> None:
        if self.when not in _MOMENTS:
            raise ValueError(f"when={self.when!r}: expected one of {', '.join(_MOMENTS)}")
        if self.api is not None:
            check_api(self.api)
        for name, value in (*self._wanted.items(), ("nth", self._nth), ("times", self._times or 1)):
            (check_whole if name in _WHOLE_NUMBERS else check_text)(name, value)
        if self._nth < 1 or (self._times is not None and self._times < 1):
            raise ValueError("nth and times count from 1")
        if isinstance(partition := self._wanted.get("partition"), int) and partition < 0:
            raise ValueError(f"partition={partition}: partitions count from 0")
        self._check_action()
        if isinstance(self.action, Throttle) and self.when != BEFORE:
            raise ValueError(f"Throttle applies to an answer: when={self.when!r} is not possible, only {BEFORE!r}")
        if self.when == MID:
            if self.api not in (None, "EndTxn"):
                raise ValueError(f"when='mid' is between the two phases of EndTxn; {self.api} has only one phase")
            for name in sorted(self._wanted.keys() - _OF_MARKERS):
                raise ValueError(f"{name}: markers are sent by no client; when='mid' can match {sorted(_OF_MARKERS)}")
        else:
            check_criteria(served, self.api, self._wanted)

    def _check_action(self) -> None:
        if isinstance(self.action, type):
            raise ValueError(f"action={self.action.__name__} is a class: expected an object of it, with its arguments")
        if not (callable(self.action) or isinstance(self.action, _KINDS)):
            raise ValueError(
                f"action={self.action!r}: expected Error, Delay, Drop, Disconnect, Hold, Throttle or a function"
            )
        if inspect.iscoroutinefunction(self.action):
            raise ValueError(f"action={self.action!r} is a coroutine function: expected a plain function")

    def remove(self) -> None:
        """Stop matching requests; requests already held or delayed continue when they are due.

        Raises what the function of the fault raised first.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        raised = self._remove(self)
        if raised is not None:
            report({self: raised}, error)

    def __repr__(self) -> str:
        wanted = "".join(f", {name}={value!r}" for name, value in self._wanted.items())
        return f"<fault {self.api or 'any'} {self.when}{wanted}: {self.action!r}, {counted(self.hits, 'hit')}>"

    def applies_to(self, when: str, seen: RequestSeen) -> bool:
        """Return whether the fault applies to a request, and count the match."""
        if when != self.when or (self.api is not None and self.api != seen.api) or not self._matches(seen):
            return False
        self.matched += 1
        if self.matched < self._nth or (self._times is not None and self.hits >= self._times):
            return False
        self.hits += 1
        return True

    def _matches(self, seen: RequestSeen) -> bool:
        wanted = self._wanted
        for name in ("version", "client_id", "broker"):
            if name in wanted and getattr(seen, name) != wanted[name]:
                return False
        if "principal" in wanted and wanted["principal"] not in (seen.principal, seen.principal.partition(":")[2]):
            return False
        if "transactional_id" in wanted and wanted["transactional_id"] not in seen.transactional_ids:
            return False
        if "group" in wanted and wanted["group"] not in seen.groups:
            return False
        topic, partition = wanted.get("topic"), wanted.get("partition")
        if partition is None:
            return topic is None or topic in seen.topics
        return any(each.partition == partition and topic in (None, each.topic) for each in seen.partitions)


class Recorder(Protocol):
    """What connections tell of their requests and responses, while something records them."""

    def asked(
        self, connection: object, broker_id: int, frame: bytes | bytearray, request: Request, now_ms: int
    ) -> None: ...

    def answered(self, connection: object, request: Request, data: Frame, now_ms: int) -> None: ...

    def closed(self, connection: object) -> None: ...


class FaultInjector:
    """The injector of faults into the requests of a cluster; it also records each request.

    `later(seconds, action)` runs an action after some real time, as a step of its own of the cluster.
    """

    def __init__(self, log: RequestLog, later: Callable[[float, Callable[[], None]], None]) -> None:
        self.log = log
        self.faults: tuple[Fault, ...] = ()
        # The first error of each fault's function that no test has got yet; the fault may have been removed before.
        self._raised: dict[Fault, BaseException] = {}
        self.recorder: Recorder | None = None
        self._later = later

    def add(self, fault: Fault) -> None:
        """Add a fault; of several that match a request, the first one applies."""
        self.faults = (*self.faults, fault)

    def remove(self, fault: Fault) -> BaseException | None:
        """Remove a fault, and return the first error of its function, for the caller to raise."""
        self.faults = tuple(each for each in self.faults if each is not fault)
        return self._raised.pop(fault, None)

    def take_raised(self) -> dict[Fault, BaseException]:
        """Return the first error of each fault's function, for the caller to raise."""
        raised, self._raised = self._raised, {}
        return raised

    def _matching(self, when: str, seen: RequestSeen) -> Fault | None:
        return next((fault for fault in self.faults if fault.applies_to(when, seen)), None)

    def intercept(self, context: ApiCall[Any], handler: Callable[[ApiCall[Any]], None]) -> None:
        seen = RequestSeen.of(context)
        self.log.add(seen)
        if self.faults:
            seen.in_session = frozenset(APIS[seen.api].in_session(context))
        context.on_answer = lambda response: self._leave(context, seen, response)
        fault = self._matching(BEFORE, seen)
        if fault is None:
            handler(context)
        else:
            self._apply(fault, self._intercepted(context, seen, lambda: self._handle(context, handler)))

    def _handle(self, context: ApiCall[Any], handler: Callable[[ApiCall[Any]], None]) -> None:
        def handle() -> None:
            # Read again: the request may have been delayed.
            context.now_ms = context.broker.now_ms()
            handler(context)

        context.guarded(handle, None)()

    def _leave(self, context: RequestContext, seen: RequestSeen, response: Response | None) -> None:
        """Send a response; a fault applies once the writes it confirms are durable."""
        # A refused request has not taken effect; the fault waits for one that has.
        fault = None if is_refusal(response, context.version) else self._matching(AFTER_APPLY, seen)
        if fault is None:
            self._send(context, seen, response)
            return
        request = self._intercepted(context, seen, lambda: self._send(context, seen, response))
        context.broker.sync_queue.put(lambda _now_ms: self._apply(fault, request))

    @staticmethod
    def _send(context: RequestContext, seen: RequestSeen, response: Response | None) -> None:
        if response is None:
            seen.outcome = "none expected"
        else:
            seen.answered(response, context.version)
        context.send(response)

    def _intercepted(self, context: RequestContext, seen: RequestSeen, go_on: Callable[[], None]) -> InterceptedRequest:
        def lose() -> None:
            seen.outcome = "dropped by a fault"

        def cut() -> None:
            seen.outcome = "disconnected by a fault"
            context.hang_up("a fault disconnects this request")

        def throttle(duration_ms: int) -> None:
            context.throttle_ms = max(context.throttle_ms, duration_ms)

        return InterceptedRequest(
            seen,
            go_on,
            lambda code: self._send(context, seen, error_response(context.request, code)),
            lose,
            cut,
            self._later,
            throttle,
        )

    def intercept_marker(
        self,
        seen: RequestSeen,
        write: Callable[[], None],
        answer: Callable[[ErrorCode], None],
        sync: Callable[[], None],
    ) -> bool:
        """Apply a matching fault to a marker that is about to be written; return whether one applied.

        `write` writes the marker; `answer` passes the coordinator a leader's answer without writing it.
        """
        fault = self._matching(MID, seen)
        if fault is None:
            return False
        # Earlier writes have to survive a crash that the fault may cause.
        sync()
        self._apply(
            fault,
            InterceptedRequest(
                seen, write, answer, lambda: answer(_LOST), lambda: answer(_LOST), self._later, lambda _ms: None
            ),
        )
        return True

    def _apply(self, fault: Fault, request: InterceptedRequest) -> None:
        match fault.action:
            case Error(code=ErrorCode() as code):
                request.refuse(code)
            case Delay(seconds=seconds):
                request.later(seconds, request.go_on)
            case Drop():
                request.lose()
            case Disconnect():
                request.cut()
            case Hold(event=event) if not event.is_set():
                request.later(_LOOK_AGAIN_S, lambda: self._apply(fault, request))
            case Hold():
                request.go_on()
            case Throttle(seconds=seconds):
                request.throttle(round(seconds * 1000))
                request.go_on()
            case _ if self._call(fault, request.seen):
                request.go_on()
            case _:
                request.cut()

    def _call(self, fault: Fault, seen: RequestSeen) -> bool:
        """Call the function of a fault, and return whether it succeeded; its error is kept for the test."""
        assert callable(fault.action)
        try:
            at_once(fault.action(seen), f"action={fault.action!r} returned an awaitable, which is never awaited")
        except Crashed:
            raise
        except BaseException as error:
            # `pytest.fail` and `sys.exit` raise no Exception, and must not end the thread of all clients either.
            logger.exception("the function of %r failed; its request loses its connection", fault)
            self._raised.setdefault(fault, _raisable(error))
            return False
        return True


def _raisable(error: BaseException) -> BaseException:
    """Return an error for the test; a future, and so an `await`, cannot raise StopIteration."""
    if not isinstance(error, StopIteration):
        return error
    raisable = RuntimeError("the function of a fault raised StopIteration")
    raisable.__cause__ = error
    return raisable


def report(raised: Mapping[Fault, BaseException], first: BaseException | None) -> None:
    """Make the errors of functions notes of the error of their block, or else raise the first one with the others."""
    in_block = first is not None
    for fault, error in raised.items():
        if first is None:
            first = error
        else:
            first.add_note(f"the function of {fault!r} raised {error!r}")
    if first is not None and not in_block:
        raise first
