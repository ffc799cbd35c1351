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
    "zombie": Bounds(tasks=1, drivers=2, faults=0, switches=4),
    "zombie, old protocol": Bounds(tasks=2, drivers=2, faults=0, switches=3, level=1),
    "zombie and faults": Bounds(tasks=1, drivers=2, faults=1, switches=1),
    "three drivers": Bounds(tasks=1, drivers=3, faults=0, switches=2),
    # `transactionalIdPrefix` is changed while the older driver lives on.
    "two prefixes": Bounds(tasks=1, drivers=2, faults=0, switches=4, prefixes=2),
    # The group loses its newest offset.
    "lost offset": Bounds(
        tasks=1, drivers=2, faults=1, processes=2, switches=2, zombies_after=1, kinds=frozenset({"offset"})
    ),
    # A partition has no leader for some time; ends lose their markers there.
    "no leader": Bounds(tasks=2, drivers=2, faults=2, has_zombies=False, kinds=frozenset({"leader", "dies"})),
    "no leader, zombie": Bounds(tasks=1, drivers=2, faults=1, switches=2, kinds=frozenset({"leader"})),
    # Commits of one run in two processes.
    "two processes": Bounds(tasks=1, drivers=1, faults=1, micro_batches=3, processes=2),
    # An operator completes or aborts a decision, whether its driver lives or not.
    "operator": Bounds(tasks=1, drivers=2, faults=1, micro_batches=1, has_zombies=False, switches=1, has_operator=True),
    "two writes": Bounds(tasks=1, drivers=2, faults=1, has_zombies=False, writes=2),
    # Tasks lose their transactions, by their timeout, an operator, or a process that dies.
    "lost tasks": Bounds(
        tasks=2,
        drivers=2,
        faults=2,
        micro_batches=1,
        has_zombies=False,
        kinds=frozenset({"dies", "time", "terminated"}),
    ),
}
# A few thousand states each.
SHORT: Final = ("restart, two tasks", "old protocol", "two writes")

_RESTART: Final = Bounds(tasks=1, drivers=2, faults=2, has_zombies=False)
_LOST: Final = Bounds(tasks=2, drivers=2, faults=2, micro_batches=1, has_zombies=False)
_OPERATOR: Final = Bounds(
    tasks=1, drivers=2, faults=1, micro_batches=1, has_zombies=False, switches=1, has_operator=True
)
# Small worlds, each with the faults that show a mutation of some part.
FOR_MUTATIONS: Final[dict[str, Bounds]] = {
    "woken": Bounds(tasks=1, drivers=2, faults=0, switches=2),
    "oldwoken": Bounds(tasks=1, drivers=2, faults=0, micro_batches=3, switches=1, level=1),
    "named": Bounds(tasks=1, drivers=2, faults=0, micro_batches=3, switches=3, zombies_after=1),
    "stale": _RESTART._replace(kinds=frozenset({"stale", "dies", "missed"})),
    "oldstale": _RESTART._replace(kinds=frozenset({"stale", "dies"}), level=1),
    "writes": DEFAULT["two writes"],
    "rows": _RESTART._replace(kinds=frozenset({"rows", "dies"})),
    "missed": _RESTART._replace(kinds=frozenset({"missed", "dies"})),
    "processes": Bounds(tasks=1, drivers=1, faults=1, micro_batches=3, processes=2),
    "empty": Bounds(tasks=1, drivers=1, faults=0, micro_batches=4, processes=2, empty_micro_batches=2),
    "emptywoken": Bounds(tasks=1, drivers=2, faults=0, micro_batches=3, switches=2, empty_micro_batches=1),
    "old": Bounds(tasks=1, drivers=1, faults=1, level=1),
    "oldrepeated": Bounds(tasks=1, drivers=1, faults=1, level=1, kinds=frozenset({"repeated"})),
    "deaths": _LOST._replace(kinds=frozenset({"dies", "unanswered"}), faults=1, micro_batches=2),
    "olddeaths": _LOST._replace(kinds=frozenset({"dies", "unanswered"}), faults=1, micro_batches=2, level=1),
    "unanswered": _RESTART._replace(kinds=frozenset({"unanswered"})),
    "lost": DEFAULT["lost tasks"]._replace(faults=1),
    "lostalone": DEFAULT["lost tasks"]._replace(drivers=1),
    "oldlost": _LOST._replace(kinds=frozenset({"dies", "time", "terminated"}), level=1),
    "level": _LOST._replace(kinds=frozenset({"dies", "level"}), micro_batches=2),
    "hidden": _LOST._replace(kinds=frozenset({"dies", "expires", "terminated"})),
    "rewrite": _LOST._replace(kinds=frozenset({"dies", "terminated", "missed"}), policy="rewrite", drivers=3),
    "incomplete": Bounds(tasks=1, drivers=1, faults=2, micro_batches=1, kinds=frozenset({"time", "unanswered"})),
    "prefixes": DEFAULT["two prefixes"]._replace(micro_batches=1),
    "offset": _RESTART._replace(kinds=frozenset({"offset", "dies"})),
    "offsetwoken": DEFAULT["lost offset"],
    "oldoffsetwoken": DEFAULT["lost offset"]._replace(level=1),
    "siblings": Bounds(tasks=1, drivers=2, faults=0, micro_batches=3, processes=2, switches=2, zombies_after=1),
    "told": _RESTART._replace(kinds=frozenset({"rows", "stale", "dies"}), faults=3),
    "kept": _RESTART._replace(kinds=frozenset({"dies", "stale", "unanswered"}), faults=3),
    "levellost": _LOST._replace(kinds=frozenset({"level", "terminated"}), micro_batches=2),
    "oldheld": _LOST._replace(kinds=frozenset({"dies", "held", "terminated"}), level=1, faults=3),
    "topic": _LOST._replace(kinds=frozenset({"topic", "dies"}), micro_batches=2),
    "oldtopic": _LOST._replace(kinds=frozenset({"topic", "dies", "terminated"}), faults=3, level=1),
    "leader": DEFAULT["no leader"]._replace(tasks=1),
    "oldleader": DEFAULT["no leader"]._replace(tasks=1, level=1),
    "operator": _OPERATOR._replace(kinds=frozenset({"dies"})),
    "operatoralive": _OPERATOR._replace(faults=0, switches=2, micro_batches=2),
    "topicwoken": Bounds(tasks=1, drivers=2, faults=1, switches=1, kinds=frozenset({"topic"})),
    "topiclost": _LOST._replace(kinds=frozenset({"topic", "dies", "terminated"})),
    "doubt": Bounds(tasks=1, drivers=1, faults=2, kinds=frozenset({"stale", "unanswered"})),
}


def world_named(name: str) -> Bounds:
    """Return the bounds of one of these worlds."""
    return DEFAULT.get(name) or FOR_MUTATIONS[name]
