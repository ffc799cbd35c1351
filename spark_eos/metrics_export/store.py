"""All metrics of a driver: what its processes have sent, added up."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, urlencode

from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS, Changes, Labels, MetricValues, ProcessMetrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_SIDES: Final[Mapping[str, ProcessMetrics]] = {each.prefix: each for each in (SINK_METRICS, SOURCE_METRICS)}
_MOST_REPORTS: Final = 1_000


class Family(NamedTuple):
    """One metric with its values; the name of a counter has no suffix."""

    name: str
    meaning: str
    is_counter: bool
    values: dict[Labels, int]


class MetricStore:
    """The metrics of a driver, by side and subject, and the numbers of its last micro-batches; for several threads."""

    def __init__(self) -> None:
        self._values: dict[str, MetricValues] = {}
        self._reports: dict[str, deque[dict[str, Any]]] = {}
        self._lock = Lock()
        self.version = 0

    def apply(self, changes: Mapping[str, Changes]) -> None:
        with self._lock:
            self.version += bool(changes)
            for prefix, change in changes.items():
                values = self._values.setdefault(prefix, MetricValues())
                for subject in change.values.by_subject.keys() - values.by_subject.keys():
                    # Prometheus sees a counter grow only if it has seen it before.
                    known = _SIDES[prefix].definitions.values() if prefix in _SIDES else ()
                    values.of(subject).counters.update({each.name: 0 for each in known if each.is_counter})
                values.merge(change.values)
                self._reports.setdefault(prefix, deque(maxlen=_MOST_REPORTS)).extend(change.reports)

    def families(self) -> Iterator[Family]:
        with self._lock:
            for prefix, values in self._values.items():
                known = _SIDES[prefix].definitions if prefix in _SIDES else {}
                found: dict[tuple[str, bool], dict[Labels, int]] = {}
                for subject, each in values.by_subject.items():
                    for name, value in each.counters.items():
                        found.setdefault((name, True), {})[subject] = value
                    for name, gauge in each.gauges.items():
                        of_name = found.setdefault((name, False), {})
                        of_name.update({(*subject, *labels): value for labels, value in gauge.items()})
                for (name, is_counter), by_labels in found.items():
                    meaning = known[name].meaning if name in known else name.replace("_", " ")
                    yield Family(f"{prefix}_{name}", meaning, is_counter, by_labels)

    def collect(self) -> "Iterator[Metric]":
        """Yield every metric with its current values, as a collector of Prometheus' library does."""
        from prometheus_client.core import Metric

        for each in self.families():
            family = Metric(each.name, each.meaning, "counter" if each.is_counter else "gauge")
            for labels, value in each.values.items():
                family.add_sample(f"{each.name}_total" if each.is_counter else each.name, dict(labels), value)
            yield family

    def reports(self) -> dict[str, list[dict[str, Any]]]:
        with self._lock:
            return {prefix: list(reports) for prefix, reports in self._reports.items()}


REPORTS_PATH: Final = "/micro-batches"


class MicroBatchNumbers(NamedTuple):
    """The numbers of one micro-batch: of each write, and of each source by the digest of its end."""

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

    No proxy is used: the port belongs to a driver.
    """
    wanted = urlencode([("query", query), ("micro_batch", micro_batch), *(("end", end) for end in ends)])
    connection = HTTPConnection(*place, timeout=5.0)
    try:
        connection.request("GET", f"{REPORTS_PATH}?{wanted}")
        answer = connection.getresponse()
        body = answer.read()
    except HTTPException as error:
        raise ValueError(f"no HTTP: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    return numbers_in(body)


def numbers_in(body: bytes) -> MicroBatchNumbers:
    """Return the numbers in an answer; raise ValueError if another service has sent it."""
    found = json.loads(body)
    if not isinstance(found, dict) or found.keys() != set(MicroBatchNumbers._fields):
        raise ValueError(f"the answer has no numbers of micro-batches: {body[:80]!r}")
    return MicroBatchNumbers(**found)


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
