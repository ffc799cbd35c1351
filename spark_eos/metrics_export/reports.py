"""The numbers of single micro-batches at the port of an exporter, for users who log the progress of queries."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlencode

from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS

REPORTS_PATH: Final = "/micro-batches"
_ANSWER_SECONDS: Final = 5.0
_OK: Final = 200


class MicroBatchNumbers(NamedTuple):
    """The numbers of one micro-batch: those of each write, and of each source by the digest of its end."""

    sinks: list[dict[str, Any]]
    sources: dict[str, dict[str, Any]]


def offsets_digest(offsets: Any) -> str:
    """Return a short text for the offsets of a micro-batch, which have no other name that Spark and a source know."""
    if isinstance(offsets, dict):
        # Entries without partitions are notes of the source.
        offsets = {topic: partitions for topic, partitions in offsets.items() if partitions != {}}
    return sha256(json.dumps(offsets, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def fetch_numbers(place: tuple[str, int], query: str, micro_batch: int, ends: Sequence[str]) -> MicroBatchNumbers:
    """Return the numbers of a micro-batch; raise OSError or ValueError if the port has none.

    No proxy is used: the port is that of a driver.
    """
    wanted = urlencode([("query", query), ("micro_batch", micro_batch), *(("end", end) for end in ends)])
    connection = HTTPConnection(*place, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", f"{REPORTS_PATH}?{wanted}")
        answer = connection.getresponse()
        body = answer.read()
    except HTTPException as error:
        raise ValueError(f"no HTTP: {error!r}") from error
    finally:
        connection.close()
    if answer.status != _OK:
        raise ValueError(f"status {answer.status}")
    return MicroBatchNumbers(**json.loads(body))


def selected(reports: Mapping[str, Sequence[dict[str, Any]]], query_string: str) -> bytes:
    """Return the part of all reports that `fetch_numbers` asks for; later ones replace earlier ones."""
    wanted = parse_qs(query_string)
    place = wanted.get("query"), wanted.get("micro_batch")
    sinks = {
        each["sink"]: {name: value for name, value in each.items() if name not in ("query", "micro_batch")}
        for each in reports.get(SINK_METRICS.prefix, ())
        if ([each.get("query")], [str(each.get("micro_batch"))]) == place
    }
    sources = {
        each["end"]: {name: value for name, value in each.items() if name != "end"}
        for each in reports.get(SOURCE_METRICS.prefix, ())
        if each["end"] in wanted.get("end", ())
    }
    return json.dumps(MicroBatchNumbers(list(sinks.values()), sources)._asdict()).encode()
