"""The pictures of the documentation: `python -m tests.support.pictures` writes docs/images.

They are screenshots of what a user sees, made in headless Chromium from a broker in a known state.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from selenium.webdriver.common.by import By

from broker_core import EmbeddedBroker, TopicPartition
from spark_eos.admin.timeline import take_timeline
from spark_eos.admin.timeline_page import page
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.chromium import chromium
from tests.support.clocks import AheadClock, runtime_by
from tests.support.console_scene import Scene, staged
from tests.support.hanging import HANGING_SETTINGS
from tests.support.spark_eos.console import running_console
from tests.support.waiting import wait_until

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
# GitHub shows a README about this many CSS pixels wide; twice as many pixels keep the text sharp.
_WIDTH: Final = 1000
_SCALE: Final = 2
_ORDERS: Final = TopicPartition("orders", 0)
# The picture shows the open transaction as it looks after this time.
_OPEN_FOR_S: Final = 95


class _Writer:
    """A transactional producer that writes to one partition."""

    def __init__(self, kafka: EmbeddedBroker, transactional_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 900_000,
                # The broker closes the connections before the producers do.
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)

    def begin(self, count: int) -> None:
        """Begin a transaction and write records to it."""
        self._producer.begin_transaction()
        for number in range(count):
            self._producer.produce(_ORDERS.topic, str(number), partition=_ORDERS.partition)
        self._producer.flush(30)

    def commit(self, counts: Iterable[int]) -> None:
        """Commit one transaction for each number of records."""
        for count in counts:
            self.begin(count)
            self._producer.commit_transaction(30)

    def abort(self, count: int) -> None:
        """Abort a transaction with some records."""
        self.begin(count)
        self._producer.abort_transaction(30)


def draw_timeline(out: Path) -> None:
    """Draw a partition with committed, aborted and open transactions, one of which blocks the last stable offset."""
    with EmbeddedBroker(topics={_ORDERS.topic: 1}) as kafka, tempfile.TemporaryDirectory() as folder:
        first, second, third = (_Writer(kafka, f"orders-etl-{number}") for number in range(3))
        importer = _Writer(kafka, "nightly-import")
        first.commit([120, 90])
        second.commit([140])
        third.abort(60)
        third.commit([110])
        importer.begin(70)
        second.commit([130])
        first.abort(40)
        third.commit([150])
        first.commit([100])
        clock = AheadClock()
        clock.ahead_seconds = _OPEN_FOR_S
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,)), runtime_by(clock)) as client:
            timeline = take_timeline(client, _ORDERS)
        html = Path(folder) / "timeline.html"
        html.write_text(page(timeline), encoding="utf-8")
        with chromium(_WIDTH, 900, _SCALE) as browser:
            browser.get(html.as_uri())
            browser.find_element(By.TAG_NAME, "body").screenshot(str(out))


def draw_console(out: Path) -> None:
    """Draw the console's overview of a cluster in which something hangs, something is open and a query has stopped."""
    scene = Scene("", "eu", "payments-7", "copier")
    with EmbeddedBroker(config=HANGING_SETTINGS) as kafka, staged(kafka.bootstrap_servers, scene):
        with (
            running_console(kafka.bootstrap_servers, scene.decisions) as console,
            chromium(1180, 900, _SCALE) as browser,
        ):
            browser.get(console.address)
            wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, "#open tbody tr"), "the page has its data")
            browser.execute_script(
                "for (const each of document.querySelectorAll('code, .cluster')) "
                f"each.textContent = each.textContent.replace('{kafka.bootstrap_servers}', 'kafka:9092')"
            )
            browser.find_element(By.TAG_NAME, "body").screenshot(str(out))


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(exist_ok=True)
    draw_console(IMAGES / "console.png")
    draw_timeline(IMAGES / "timeline.png")


if __name__ == "__main__":
    main()
