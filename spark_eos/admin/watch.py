"""The command `eos-kafka watch`: the last stable offsets that lag and the transactions that hold them back, live.

At a terminal it is a full-screen view, which needs the extra `cli`; anywhere else, and with `--plain`, it prints lines.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from broker_core.types import counted
from spark_eos.admin.output import TABLE, ExitCode, Painter, Style
from spark_eos.admin.parsers import options_of
from spark_eos.admin.transactions_view import producer_document
from spark_eos.admin.watch_model import Order, Watcher, WatchSnapshot, waited_text
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import OptionError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line, utc
from spark_eos.transactions.standstills import Standstill


def run(chosen: argparse.Namespace) -> int:
    # A view that waits longer for a broker looks as if it had stopped.
    options = options_of(chosen, longest_wait_ms=5_000)
    is_screen = sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"
    is_plain = chosen.plain or chosen.count is not None or chosen.output != TABLE or not is_screen
    show = print_lines if is_plain else _screen()
    with KafkaClient(options) as client:
        follow(chosen, Watcher(client, chosen.topic, chosen.max_in_flight), show)
    return ExitCode.DONE


def follow(chosen: argparse.Namespace, watcher: Watcher, show: Callable[[argparse.Namespace, Watcher], None]) -> None:
    """Show looks until a person leaves with Ctrl+C, which is no success before all is shown that was asked for."""
    try:
        show(chosen, watcher)
    except KeyboardInterrupt:
        if chosen.count is not None or not watcher.has_looked:
            raise


def print_lines(chosen: argparse.Namespace, watcher: Watcher) -> None:
    painter = Painter(sys.stdout, chosen.color)
    looks = 0
    while True:
        snapshot, order = watcher.look(), Order(chosen.sort)
        if chosen.output == TABLE:
            lines = [f"  {_line(each, snapshot.taken_at_ms, painter)}" for each in snapshot.ordered(order)]
            print("\n".join([summary(snapshot), *lines]), flush=True)
        else:
            print(json.dumps(document_of(snapshot, order)), flush=True)
        looks += 1
        if looks == chosen.count:
            return
        watcher.client.runtime.clock.sleep(chosen.interval)


def summary(snapshot: WatchSnapshot) -> str:
    text = (
        f"{utc(snapshot.taken_at_ms)}: {counted(snapshot.partition_count, 'partition')}, {len(snapshot.lagging)} "
        f"with a lag, {snapshot.counts()}"
    )
    return f"{text}. {snapshot.trouble}" if snapshot.trouble else text


def document_of(snapshot: WatchSnapshot, order: Order) -> dict[str, Any]:
    """Return a look as one object; ages are in milliseconds, and null if no coordinator has the transaction."""
    return {
        "taken_at_ms": snapshot.taken_at_ms,
        "partitions": snapshot.partition_count,
        "trouble": snapshot.trouble or None,
        "lagging": [
            {
                **each.topic_partition._asdict(),
                "last_stable_offset": each.last_stable_offset,
                "high_watermark": each.high_watermark,
                "lag": each.lag,
                "seen_since_ms": each.since_ms,
                "open": [
                    {
                        **producer_document(opened.transaction.producer),
                        "transactional_id": opened.transactional_id,
                        "verdict": opened.verdict.value,
                        "age_ms": opened.age_ms(snapshot.taken_at_ms),
                        "why": opened.why,
                    }
                    for opened in each.opened
                ],
            }
            for each in snapshot.ordered(order)
        ],
    }


def _line(each: Standstill, now_ms: int, painter: Painter) -> str:
    start = f"{each.topic_partition}: last stable offset {each.last_stable_offset}, lag {each.lag}"
    oldest = each.oldest
    if oldest is None:
        return f"{start}, no open transaction any more"
    word = oldest.verdict.value
    verdict = painter.paint(word, Style.RED, Style.BOLD) if oldest.hangs else word
    owner = f" of '{one_line(oldest.transactional_id)}'" if oldest.transactional_id else ""
    dated = "" if oldest.age_ms(now_ms) is not None else f", whose last record {oldest.transaction.dated(now_ms)}"
    age = f"open {waited_text(each, now_ms)}"
    return f"{start}, {counted(len(each.opened), 'open transaction')}, the oldest{owner} {age}{dated}: {verdict}"


def _screen() -> Callable[[argparse.Namespace, Watcher], None]:
    try:
        from spark_eos.admin.watch_screen import WatchScreen
    except ImportError as error:
        raise OptionError(
            f"The full-screen view needs a library that is not installed: {error.name}",
            remedy="Run `pip install '.[cli]'` in a clone of eos-kafka, or add --plain to print lines",
        ) from error

    def show(chosen: argparse.Namespace, watcher: Watcher) -> None:
        if chosen.color == "never":
            os.environ["NO_COLOR"] = "1"
        # An error of the first look is printed before the screen opens.
        first = watcher.look()
        commands = OperatorCommands((chosen.bootstrap_server,), chosen.command_config)
        WatchScreen(watcher.look, commands, first, chosen.interval, Order(chosen.sort)).run()

    return show
