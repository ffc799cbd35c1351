"""Interceptors of the requests to a cluster in memory: tests act before, after or instead of them."""

from collections.abc import Callable
from typing import Any


def before(cluster: object, call: str, act: Callable[[], object], times: int = 1, first: int = 1) -> None:
    """Act before requests of a kind, from the `first` one on; an error of the act is the answer."""
    _interpose(cluster, call, times, lambda perform: (act(), perform())[1], first)


def after(cluster: object, call: str, act: Callable[[], object], times: int = 1) -> None:
    """Act after each of the next requests of a kind has taken effect; an error of the act is the answer."""
    _interpose(cluster, call, times, lambda perform: (perform(), act())[0])


def instead(cluster: object, call: str, act: Callable[[], object], times: int = 1) -> None:
    """Answer the next requests of a kind with what the act returns or raises."""
    _interpose(cluster, call, times, lambda _: act())


def fail(cluster: object, call: str, error: BaseException, times: int = 10_000, first: int = 1) -> None:
    """Let requests of a kind fail without an effect, from the `first` one on."""

    def refuse() -> None:
        raise error

    _interpose(cluster, call, times, lambda _: refuse(), first)


def watched(cluster: object, call: str) -> list[tuple[Any, ...]]:
    """Return the arguments of the requests of a kind, as they come."""
    usual, seen = getattr(cluster, call), list[tuple[Any, ...]]()

    def note(*given: Any, **named: Any) -> Any:
        seen.append((*given, *named.values()))
        return usual(*given, **named)

    setattr(cluster, call, note)
    return seen


def restore(cluster: object, *calls: str) -> None:
    """Remove the interceptors of some kinds of requests."""
    for call in calls:
        vars(cluster).pop(call, None)


def _interpose(cluster: object, call: str, times: int, act: Callable[[Callable[[], Any]], Any], first: int = 1) -> None:
    usual, count = getattr(cluster, call), 0

    def performed(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count in range(first, first + times):
            return act(lambda: usual(*arguments, **named))
        return usual(*arguments, **named)

    setattr(cluster, call, performed)
