"""Know the cluster's finalized feature levels from what brokers say in their ApiVersions answers (KIP-584)."""

import time
from typing import Any, Final

from broker_core.errors import ErrorCode

# How old the last answer may be when a transaction begins: one small request in that time for each client, whatever
# the number of tasks. Brokers serve both protocols at every level, so that a level not noticed yet harms nothing.
MAX_AGE_SECONDS: Final = 10.0
_UNKNOWN_EPOCH: Final = -1


class FinalizedFeatures:
    """The newest finalized levels that any broker has named.

    Every connection begins with ApiVersions, so most of this costs nothing. An answer carries the epoch of the metadata
    it was made from: the one with the largest is the newest, and a broker that lags behind changes nothing.
    """

    def __init__(self) -> None:
        self._epoch = _UNKNOWN_EPOCH
        self._levels: dict[str, int] = {}
        self._heard_at: float | None = None

    def note(self, response: Any) -> None:
        """Take an ApiVersions answer; one of before version 3, or of a broker without features, names no level."""
        if response.error_code != ErrorCode.NONE:
            return
        if self._heard_at is None or response.finalized_features_epoch > self._epoch:
            self._epoch = response.finalized_features_epoch
            self._levels = {each.name: each.max_version_level for each in response.finalized_features or ()}
        self._heard_at = time.monotonic()

    def level(self, name: str) -> int:
        """Give the finalized level of a feature; one that no broker names is at 0."""
        return self._levels.get(name, 0)

    @property
    def is_fresh(self) -> bool:
        """Say whether a broker has spoken of its features lately, and nothing has cast doubt on it since."""
        return self._heard_at is not None and time.monotonic() - self._heard_at < MAX_AGE_SECONDS

    def doubt(self) -> None:
        """Take the next answer for the newest whatever its epoch, as of a cluster that was set up again."""
        self._heard_at = None

    def go_on(self) -> None:
        """Keep what is known although it could not be refreshed, so that not every transaction waits for an answer."""
        self._heard_at = time.monotonic()
