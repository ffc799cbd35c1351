"""A source topic that loses its records while no query runs, and has as many again when one is started."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_eos.errors import DataLossError
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import RangePartition, StreamReader
from tests.support.both_brokers import SETTINGS, brokers_of
from tests.support.restartable import Restartable, restartable
from tests.support.spark_eos.source_data import create_topic, send_plain


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        metafunc.parametrize("broker", brokers_of(metafunc.config), indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    with restartable(request.param, tmp_path, SETTINGS) as running:
        yield running


def started(broker: Restartable, topic: str, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return StreamReader({**given, **options}, source_schema(False))


def read_all(broker: Restartable, topic: str) -> dict[str, Any]:
    """Return where a first micro-batch ends that reads six records."""
    send_plain(broker.bootstrap_servers, topic, range(6))
    reader = started(broker, topic)
    position = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    return position


@pytest.mark.parametrize("is_emptied", [True, False])
def test_start_after_the_log_was_emptied_and_filled_again_stops(broker: Restartable, is_emptied: bool) -> None:
    topic = create_topic(broker.bootstrap_servers)
    position = read_all(broker, topic)
    if is_emptied:
        broker.restart_without(topic, 0)
    else:
        broker.restart()
    send_plain(broker.bootstrap_servers, topic, range(100, 110))
    again = started(broker, topic)
    if is_emptied:
        with pytest.raises(DataLossError, match=r"LOG_TRUNCATED.*was read up to offset 6, but leader epoch 0 "):
            again.latestOffset(position, again.getDefaultReadLimit())
    else:
        end = again.latestOffset(position, again.getDefaultReadLimit())
        assert end[topic] == {"0": 16}
    again.stop()


@pytest.mark.parametrize("count", [3, 10])
def test_query_that_accepts_the_loss_goes_on_as_the_error_says(broker: Restartable, count: int) -> None:
    topic = create_topic(broker.bootstrap_servers)
    position = read_all(broker, topic)
    broker.restart_without(topic, 0)
    send_plain(broker.bootstrap_servers, topic, range(count))
    lenient = started(broker, topic, failOnDataLoss="false")
    limit = lenient.getDefaultReadLimit()
    end = lenient.latestOffset(position, limit)
    assert end[topic] == {"0": count}
    assert pieces(lenient, position, end) == [(0, count)]
    send_plain(broker.bootstrap_servers, topic, range(5))
    assert pieces(lenient, end, lenient.latestOffset(end, limit)) == [(count, count + 5)]
    lenient.stop()


def pieces(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    planned = [each.piece for each in reader.partitions(start, end) if isinstance(each, RangePartition)]
    return [(each.start, each.end) for each in planned]
