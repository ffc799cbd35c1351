"""The picture of `eos-kafka watch`: `python -m tests.support.watch_picture` writes docs/images/watch.svg."""

import asyncio
import re
from pathlib import Path
from typing import Final

from broker_core import EmbeddedBroker
from spark_eos.admin.watch_model import Watcher
from spark_eos.admin.watch_screen import WatchScreen
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession

PICTURE: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "watch.svg"
_SIZE: Final = (100, 24)
_TOPICS: Final = {"orders": 3, "invoices": 2}
_ADDRESS: Final = "localhost:9092"
_MINUTE_MS: Final = 60_000
# Textual's picture names a font on the network; it looks much the same in the reader's own.
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw_watch(out: Path) -> None:
    """Draw the screen with one live transaction in two partitions and one that hangs in a third."""
    with EmbeddedBroker(topics=_TOPICS, config=HANGING_SETTINGS) as kafka, RawClient(kafka.bootstrap_servers) as raw:
        hang(RawSession(raw, "billing-2"), "invoices", partition=1, age_ms=80 * _MINUTE_MS)
        open_up(RawSession(raw, "nightly-import"), "orders", 0, 2)
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            watcher = Watcher(client)
            app = WatchScreen(watcher.look, OperatorCommands((_ADDRESS,), None), watcher.look(), interval_seconds=2)
            asyncio.run(_draw(app, out))


async def _draw(app: WatchScreen, out: Path) -> None:
    async with app.run_test(size=_SIZE) as pilot:
        await pilot.pause()
        picture = app.export_screenshot(title="eos-kafka watch")
    out.write_text(_FONT.sub("", picture) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw_watch(PICTURE)
