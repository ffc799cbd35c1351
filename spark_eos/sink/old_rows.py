"""The warning about rows that brokers delete soon: the times that they were given are older than `retention.ms`.

Spark's own sink ignores the column `timestamp`, and a copy of old records stays for the whole retention there. Here
each record has the time of its row, and brokers delete a segment once its newest record is older than the retention.
"""

import logging
from collections.abc import Iterable
from typing import Final

from spark_eos.client.topics import describe_topic_config
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import ProcessState, Runtime, now_ms
from spark_eos.sink.messages import Prepared, TaskMessage
from spark_eos.sink.process_cache import ProcessCache, client_of

logger = logging.getLogger(__name__)
# Shorter than any retention that is in use, so that a query that keeps up needs no request.
_RECENT_MS: Final = 300_000
# The rows are committed, and a hint is not worth a longer wait.
_PATIENCE_MS: Final = 5_000


def _retentions(runtime: Runtime) -> ProcessCache[tuple[object, str], int | None]:
    return ProcessCache(runtime.clock)


def warn_of_old_rows(process: ProcessState, options: SinkOptions, messages: Iterable[TaskMessage]) -> None:
    """Log, once for each topic, that all rows of a committed micro-batch or job are older than the topic keeps them.

    One topic is looked at, the one with the oldest rows. If its settings cannot be read, nothing is logged.
    """
    newest: dict[str, int] = {}
    for message in messages:
        for name, time_ms in message.newest_ms.items() if isinstance(message, Prepared) else ():
            newest[name] = max(time_ms, newest.get(name, time_ms))
    if not newest:
        return
    topic = min(newest, key=newest.__getitem__)
    age_ms = now_ms(process.runtime.clock) - newest[topic]
    if age_ms < _RECENT_MS:
        return
    place = options.client, topic
    retention_ms = process.part(_retentions).get(place, lambda: _retention_ms(process, options, topic))
    if retention_ms is not None and age_ms > retention_ms and process.is_first((warn_of_old_rows, place)):
        logger.warning(
            "The rows just written to topic %s are at least %.1f days old by their column 'timestamp', and the topic's "
            "retention.ms is %d (%.1f days): brokers may delete them at any time. To keep them, drop the column: "
            "records then get the time of writing, as with Spark's own sink. Or raise retention.ms",
            topic,
            age_ms / 86_400_000,
            retention_ms,
            retention_ms / 86_400_000,
        )


def _retention_ms(process: ProcessState, options: SinkOptions, topic: str) -> int | None:
    """Return for how long brokers keep a record after its given time; None if that is unknown or has no limit."""
    try:
        config = describe_topic_config(client_of(process, options.client), topic, timeout_ms=_PATIENCE_MS)
    except EosKafkaError as error:
        logger.info("cannot check how long rows stay in %s: %s", topic, error)
        return None
    retention_ms = int(config.get("retention.ms") or -1)
    is_kept = "delete" not in (config.get("cleanup.policy") or "")
    return (
        None if is_kept or retention_ms < 0 or config.get("message.timestamp.type") == "LogAppendTime" else retention_ms
    )
