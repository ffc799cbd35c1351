"""A listener that adds the numbers of source and sink to the progress of Spark's queries."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener

from broker_core.types import address_text
from spark_eos.metrics_export.store import MicroBatchNumbers, fetch_numbers, offsets_digest

logger: Final = logging.getLogger(__name__)
_PAUSE_SECONDS: Final = 0.05


class ProgressListener(StreamingQueryListener):
    """A `StreamingQueryListener` that passes each progress event, with the numbers of source and sink, to a function.

    `report` is called with a dictionary: Spark's `StreamingQueryProgress` as in its JSON, and under `eosKafka` the
    numbers that Spark has no place for. `eosKafka.sinks` has one entry for each write of the micro-batch, with the
    records, transactions and bytes committed and the duration of each step. `eosKafka.sources` has one entry for each
    entry of `sources`, with the lags when they were measured last, or None for a source that is not `eos-kafka`.
    `description` of source and sink is `eos-kafka` with the topics; Spark has only the names of its classes there.

    The numbers are read at the port that the queries serve metrics at: `port` and `host` are those of the options
    `metricsPort` and `metricsHost`. If it does not answer, the lists are empty and a warning is logged once. Nothing is
    reported when a query starts, is idle or ends.

    >>> import spark_eos
    >>> listener = spark_eos.ProgressListener(print, port=9401)
    >>> spark.streams.addListener(listener)
    >>> spark.streams.removeListener(listener)
    """

    # The sink's numbers arrive after the commit, on their own way.
    _patience_seconds = 0.5

    def __init__(self, report: Callable[[dict[str, Any]], object], port: int, host: str = "127.0.0.1") -> None:
        self._report = report
        self._host, self._port = host, port
        self._is_warned = False

    def _ignore(self, event: object) -> None:
        """Do nothing when a query starts, is idle or ends."""

    onQueryStarted = onQueryIdle = onQueryTerminated = _ignore  # noqa: N815 (Spark's names)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report a micro-batch with its numbers."""
        progress: dict[str, Any] = json.loads(event.progress.json)
        ends = [_digest_of(source) for source in progress["sources"]]
        found = self._numbers(progress, ends)
        sources = [found.sources.get(end) for end in ends]
        progress["eosKafka"] = {"sinks": found.sinks, "sources": sources}
        for shown, numbers in zip(progress["sources"], sources, strict=True):
            if numbers is not None:
                shown["description"] = _described(numbers["source"])
        if found.sinks:
            progress["sink"]["description"] = _described(*(each["sink"] for each in found.sinks))
        self._report(progress)

    def _numbers(self, progress: Mapping[str, Any], ends: list[str]) -> MicroBatchNumbers:
        """Return the numbers, and wait a little for a sink that has had rows."""
        until = time.monotonic() + self._patience_seconds
        while True:
            is_over = time.monotonic() > until
            try:
                found = self._fetch(progress, ends)
            except (OSError, ValueError) as error:
                # The port opens with the first numbers, so that Spark's first event may come before it.
                if self._is_warned or is_over:
                    self._warn_once(error)
                    return MicroBatchNumbers([], {})
            else:
                self._is_warned = False
                if found.sinks or not progress["numInputRows"] or is_over:
                    return found
            time.sleep(_PAUSE_SECONDS)

    def _fetch(self, progress: Mapping[str, Any], ends: list[str]) -> MicroBatchNumbers:
        return fetch_numbers((self._host, self._port), progress["id"], progress["batchId"], ends)

    def _warn_once(self, error: Exception) -> None:
        if not self._is_warned:
            place = address_text(self._host, self._port)
            logger.warning("no metrics at %s for the progress of queries: %s", place, error)
        self._is_warned = True


def _described(*topics: str) -> str:
    """Return a description; Spark's own is the name of its class for Python sources, and `@` with a number."""
    return f"eos-kafka: {', '.join(topics)}"


def _digest_of(source: Mapping[str, Any]) -> str:
    end = source.get("endOffset")
    if isinstance(end, str):
        # Spark writes the offsets of a source as JSON, of which some versions make a text again. Those of another
        # format may be any text.
        with suppress(ValueError):
            end = json.loads(end)
    return offsets_digest(end)
