"""Named points of a micro-batch, where the tests of crashes stop the program. Otherwise they do nothing, at no cost."""


def enter(_query: str) -> None:
    """Record that a task, a commit or the planning of a query begins in this process."""


def reach(_point: str, _micro_batch: int | None = None) -> None:
    """Do what a test wants at this point, if it wants anything."""


def is_armed(_point: str) -> bool:
    return False
