"""The wait for brokers that do not respond, in the driver of a running stream.

Nothing is open in Kafka while a source plans, so an outage costs time only. Before the first response of a run nothing
is waited for: the addresses may be wrong.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from spark_eos.errors import UnansweredError, UnreachableError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Outages:
    """The repetition of look-ups that brokers do not answer; each of them has its own timeout, which paces this."""

    def __init__(self, timeout_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_seconds = timeout_ms / 1_000
        self._clock = clock
        self._has_answered = False

    def wait_out(self, work: Callable[[], Answer]) -> Answer:
        """Return the result of look-ups, which are repeated until brokers respond or `outageTimeout` is over."""
        began = self._clock()
        while True:
            try:
                answer = work()
            except (UnansweredError, UnreachableError) as error:
                waited = self._clock() - began
                if not self._has_answered or waited >= self._timeout_seconds:
                    raise
                logger.warning(
                    "The source has waited %.0f s for brokers, at most %.0f s (outageTimeout); no record is lost: %s",
                    waited, self._timeout_seconds, error,
                )  # fmt: skip
                continue
            self._has_answered = True
            return answer
