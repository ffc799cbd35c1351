"""The allocation of producer ids, from blocks that are durable before their first id is used (rules A.14)."""

from collections.abc import Callable

from broker_core.errors import ErrorCode, KafkaError

_PREFETCH_AT = 0.9


class ProducerIds:
    """A source of unique producer ids.

    `allocate_block` returns (first producer id, count) of a block that is allocated only once, and
    raises `KafkaError` if it cannot. The rest of a block is lost at a restart and never used.
    """

    def __init__(self, allocate_block: Callable[[], tuple[int, int]]) -> None:
        self._allocate_block = allocate_block
        self._current = range(0)
        self._prefetch_from = 0
        self._next = range(0)

    def next(self) -> int:
        """Return a new producer id; raise COORDINATOR_LOAD_IN_PROGRESS if none is available."""
        if not self._current:
            self._current, self._next = self._next or self._allocate(), range(0)
            self._prefetch_from = self._current.start + int(len(self._current) * _PREFETCH_AT)
        producer_id = self._current.start
        self._current = self._current[1:]
        if producer_id >= self._prefetch_from and not self._next:
            self._prefetch()
        return producer_id

    def _prefetch(self) -> None:
        """Allocate the next block early, so that a short failure of the allocator has no effect."""
        try:
            self._next = self._allocate()
        except KafkaError:
            return  # There are ids left; the next call tries again.

    def _allocate(self) -> range:
        try:
            first, count = self._allocate_block()
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id block: {error}") from error
        assert first >= 0, f"a block cannot start at {first}"
        assert count > 0, f"a block cannot hold {count} ids"
        return range(first, first + count)
