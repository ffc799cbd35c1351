"""Random bytes determined by a seed."""

from random import Random


class SeededEntropy:
    """Random bytes determined by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
