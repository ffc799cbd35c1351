"""The worlds of `make explore`, each with another part of what may happen in its full depth."""

from typing import Final

from tests.explorer.state import Bounds

DEFAULT: Final[dict[str, Bounds]] = {
    # One driver and its restarts.
    "one driver": Bounds(tasks=2, drivers=1, faults=2),
    "restart": Bounds(tasks=1, drivers=2, faults=2, has_zombies=False),
    "restart, two tasks": Bounds(tasks=2, drivers=2, faults=1, has_zombies=False, has_empty=True),
    "old protocol": Bounds(tasks=2, drivers=2, faults=1, has_zombies=False, level=1),
    "rewrite": Bounds(tasks=2, drivers=2, faults=2, micro_batches=1, has_zombies=False, policy="rewrite"),
    # The older driver lives on beside the newer one.
    "zombie": Bounds(tasks=1, drivers=2, faults=0),
    "zombie, old protocol": Bounds(tasks=1, drivers=2, faults=0, level=1),
    "zombie, one micro-batch": Bounds(tasks=1, drivers=2, faults=1, micro_batches=1),
    # Commits of one run in two processes.
    "two processes": Bounds(tasks=1, drivers=1, faults=2, micro_batches=3, processes=2),
    "two writes": Bounds(tasks=1, drivers=2, faults=1, has_zombies=False, writes=2),
}
# What finds mutations within seconds.
SHORT: Final = ("restart, two tasks", "old protocol", "two writes")


def world_named(name: str) -> Bounds:
    """Return the bounds of one of these worlds."""
    return DEFAULT[name]
