"""What tests do in the middle of the requests to a cluster in memory."""

from collections.abc import Callable
from typing import Any


def before(cluster: object, call: str, act: Callable[[], object], times: int = 1) -> None:
    """Act before each of the next requests of a kind; an error of the act is the answer."""
    _interpose(cluster, call, times, lambda perform: (act(), perform())[1])


def after(cluster: object, call: str, act: Callable[[], object], times: int = 1) -> None:
    """Act after each of the next requests of a kind has taken effect; an error of the act is the answer."""
    _interpose(cluster, call, times, lambda perform: (perform(), act())[0])


def instead(cluster: object, call: str, act: Callable[[], object], times: int = 1) -> None:
    """Answer the next requests of a kind with what the act returns or raises."""
    _interpose(cluster, call, times, lambda _: act())


def fail(cluster: object, call: str, error: BaseException, times: int = 10_000) -> None:
    """Let the next requests of a kind fail without an effect."""

    def refuse() -> None:
        raise error

    instead(cluster, call, refuse, times)


def mend(cluster: object, *calls: str) -> None:
    """Perform requests as the class of the cluster does."""
    for call in calls:
        vars(cluster).pop(call, None)


def _interpose(cluster: object, call: str, times: int, act: Callable[[Callable[[], Any]], Any]) -> None:
    usual, left = getattr(cluster, call), times

    def performed(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if not left:
            return usual(*arguments, **named)
        left -= 1
        return act(lambda: usual(*arguments, **named))

    setattr(cluster, call, performed)
