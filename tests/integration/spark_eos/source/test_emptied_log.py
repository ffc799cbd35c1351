"""A source topic that loses its records while no query runs, and has as many again when one is started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_eos.errors import DataLossError
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
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


@pytest.mark.parametrize("is_emptied", [True, False])
def test_start_after_the_log_was_emptied_and_filled_again_stops(broker: Restartable, is_emptied: bool) -> None:
    def started() -> StreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
        return StreamReader({**given, "startingOffsets": "earliest"}, source_schema(False))

    topic = create_topic(broker.bootstrap_servers)
    send_plain(broker.bootstrap_servers, topic, range(6))
    first = started()
    position = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    first.stop()
    if is_emptied:
        broker.restart_without(topic, 0)
    else:
        broker.restart()
    send_plain(broker.bootstrap_servers, topic, range(100, 110))
    again = started()
    if is_emptied:
        with pytest.raises(DataLossError, match=r"LOG_TRUNCATED.*was read up to offset 6, but leader epoch 0 "):
            again.latestOffset(position, again.getDefaultReadLimit())
    else:
        end = again.latestOffset(position, again.getDefaultReadLimit())
        assert end[topic] == {"0": 16}
    again.stop()
