"""The listener's events without Spark: the numbers of both sides, of others' queries, and without a port."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS, ProcessMetrics
from spark_eos.metrics_export.sender import MetricsSender
from spark_eos.metrics_export.store import MicroBatchNumbers, numbers_in, offsets_digest
from spark_eos.options.metrics import MetricsTargets
from spark_eos.progress_listener import ProgressListener
from spark_eos.runtime import REAL
from tests.support.spark_eos.scraping import Driver, driver, free_port, refusing_port

__all__ = ["driver"]

DEADLINE_S = 60


def event(batch: int, end: object, rows: int = 3) -> Any:
    sources = [{"endOffset": end, "description": "Python@2"}, {"endOffset": None, "description": "Python@3"}]
    sink = {"description": "Python@1"}
    progress = {"id": "q", "batchId": batch, "numInputRows": rows, "sources": sources, "sink": sink}
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


def test_numbers_are_merged_by_query_batch_and_end(driver: Driver) -> None:
    place = MetricsTargets(port=free_port())
    sender = MetricsSender(REAL, driver.identity)
    sink, source = ProcessMetrics(SINK_METRICS.prefix), ProcessMetrics(SOURCE_METRICS.prefix)
    sender.sides = (sink, source)
    end = {"t": {"0": 4, "1": 7}}
    for query, batch in (("q", 1), ("other", 2), ("q", 2)):
        for topic in ("a", "b"):
            with sink.subject(query=query, sink=topic):
                sink.report(micro_batch=batch, records=batch * 10)
    with source.subject(query="", source="t"):
        source.report(end=offsets_digest(end), offsets_planned=11)
    sender.publish(place, DEADLINE_S)
    reported: list[dict[str, Any]] = []
    assert place.port is not None
    listener = ProgressListener(reported.append, place.port)
    # Spark's JSON has an object, or a text with one in it.
    for shown in (end, json.dumps({"t": {"1": 7, "0": 4}})):
        listener.onQueryProgress(event(2, shown))
    listener.onQueryProgress(event(3, {"t": {"0": 5}}, rows=0))
    assert [each["batchId"] for each in reported] == [2, 2, 3]
    sinks = [{"sink": "a", "records": 20}, {"sink": "b", "records": 20}]
    expected = {"sinks": sinks, "sources": [{"query": "", "source": "t", "offsets_planned": 11}, None]}
    assert [each["eosKafka"] for each in reported[:2]] == [expected, expected]
    assert reported[2]["eosKafka"] == {"sinks": [], "sources": [None, None]}
    # Spark's description stays where the numbers are not known.
    assert [each["sink"]["description"] for each in reported] == ["eos-kafka: a, b"] * 2 + ["Python@1"]
    shown = [[source["description"] for source in each["sources"]] for each in reported]
    assert shown == [["eos-kafka: t", "Python@3"]] * 2 + [["Python@2", "Python@3"]]


def test_source_of_another_format_may_have_offsets_that_are_no_json() -> None:
    reported: list[dict[str, Any]] = []
    ProgressListener(reported.append, refusing_port()).onQueryProgress(event(1, "shard-7:a"))
    assert reported[0]["eosKafka"]["sources"] == [None, None]


@pytest.mark.parametrize("body", [b"[]", b'{"status": "up"}', b"null", b"", b"<html>"])
def test_answer_of_another_service_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        numbers_in(body)


def test_progress_is_reported_without_a_port_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[dict[str, Any]] = []
    listener = ProgressListener(reported.append, refusing_port())
    for batch in (1, 2):
        listener.onQueryProgress(event(batch, {}))
    assert [each["eosKafka"]["sinks"] for each in reported] == [[], []]
    assert caplog.text.count("no metrics at 127.0.0.1") == 1


class OfALateDriver(ProgressListener):
    """Meets a driver whose port opens after some refused connections."""

    refused, looks = 2, 0

    def _fetch(self, progress: Mapping[str, Any], ends: list[str]) -> MicroBatchNumbers:
        self.looks += 1
        if self.refused:
            self.refused -= 1
            raise ConnectionRefusedError
        return MicroBatchNumbers([{"sink": "a", "records": 3}], {})


def test_first_event_waits_for_a_port_that_opens_with_the_first_numbers(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[dict[str, Any]] = []
    OfALateDriver(reported.append, refusing_port()).onQueryProgress(event(0, {}))
    assert reported[0]["eosKafka"]["sinks"] == [{"sink": "a", "records": 3}]
    assert not caplog.text


def test_later_events_do_not_wait_for_a_port_that_did_not_open() -> None:
    listener = OfALateDriver(lambda _: None, refusing_port())
    listener.refused, listener._patience_seconds = 1_000, 0.01
    looks = []
    for batch in range(3):
        listener.onQueryProgress(event(batch, {}))
        looks.append(listener.looks)
    assert looks[2] - looks[1] == looks[1] - looks[0] == 1
