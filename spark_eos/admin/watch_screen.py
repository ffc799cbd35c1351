"""The full-screen view of `watch`, by Textual."""

from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Static

from broker_core.types import counted
from spark_eos.admin.watch_model import Order, WatchSnapshot, waited_text
from spark_eos.errors import EosKafkaError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line, printable, utc
from spark_eos.transactions.findings import VERDICT_WORDS, HangingFinding
from spark_eos.transactions.standstills import Standstill

# More rows than a person reads would take longer to draw than the time between two looks.
_MOST_ROWS: Final = 500
# With one space on both sides of each cell, these leave some of 80 columns to the last one.
_COLUMNS: Final = (("PARTITION", 20), ("LSO", 9), ("LAG", 7), ("OPEN", 4), ("AGE", 7), ("VERDICT", 7))
_NUMBERS: Final = ("LSO", "LAG", "OPEN", "AGE")
_LAST_COLUMN: Final = "ID"
_PADDING: Final = 2
_STYLES: Final = {"hanging": "bold red", "live": "green"}


class WatchScreen(App[None]):
    """The partitions with a lag as a table, and below it what was found about the selected one."""

    CSS = """
    #summary { height: 2; }
    DataTable { height: 1fr; }
    #detail { height: 10; border-top: solid; overflow-y: auto; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("a", "sort('age')", "Age"),
        Binding("l", "sort('lag')", "Lag"),
        Binding("n", "sort('name')", "Name"),
        Binding("v", "sort('verdict')", "Verdict"),
        Binding("r", "look", "Refresh"),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit", priority=True),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        look: Callable[[], WatchSnapshot],
        commands: OperatorCommands,
        first: WatchSnapshot,
        interval_seconds: float,
        order: Order = Order.AGE,
    ) -> None:
        super().__init__()
        self._look_once = look
        self._commands = commands
        self._snapshot = first
        self._interval_seconds = interval_seconds
        self._order = order
        self._rows: list[Standstill] = []
        self._is_paused = False
        self._is_looking = False

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="detail", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(self._interval_seconds, lambda: None if self._is_paused else self.action_look())

    def action_look(self) -> None:
        """Look again, unless the last look has not ended yet."""
        if not self._is_looking:
            self._is_looking = True
            self._look()

    @work(thread=True)
    def _look(self) -> None:
        """Query the brokers beside the event loop, which stays responsive."""
        try:
            snapshot = self._look_once()
        except EosKafkaError as error:
            snapshot = WatchSnapshot(self._snapshot.taken_at_ms, trouble=str(error))
        self.call_from_thread(self._take, snapshot)

    def _take(self, snapshot: WatchSnapshot) -> None:
        self._is_looking = False
        self._snapshot = snapshot
        self._draw()

    def action_sort(self, order: str) -> None:
        self._order = Order(order)
        self._draw()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_data_table_row_highlighted(self) -> None:
        self._draw_detail()

    def _draw(self) -> None:
        snapshot, table = self._snapshot, self.query_one(DataTable)
        selected = self._selected()
        self._rows = snapshot.ordered(self._order)[:_MOST_ROWS]
        places = [each.topic_partition for each in self._rows]
        top = table.scroll_offset
        table.clear(columns=True)
        for name, width in _COLUMNS:
            table.add_column(Text(name, justify="right" if name in _NUMBERS else "left"), width=width)
        used = sum(width + _PADDING for _, width in _COLUMNS)
        table.add_column(_LAST_COLUMN, width=max(len(_LAST_COLUMN), self.size.width - used - _PADDING))
        for each in self._rows:
            table.add_row(*_cells(each, snapshot.taken_at_ms), key=str(each.topic_partition))
        if selected is not None and selected.topic_partition in places:
            table.move_cursor(row=places.index(selected.topic_partition), scroll=False)
            table.scroll_to(*top, animate=False)
        self.query_one("#summary", Static).update(self._summary())
        self._draw_detail()

    def _summary(self) -> str:
        snapshot = self._snapshot
        state = "paused" if self._is_paused else f"every {self._interval_seconds:g} s"
        partitions = f"{len(snapshot.lagging)} of {counted(snapshot.partition_count, 'partition')} with a lag"
        hidden = len(snapshot.lagging) - len(self._rows)
        listed = f", the first {len(self._rows)} partitions" if hidden > 0 else ""
        second = f"{utc(snapshot.taken_at_ms)}, {state}, sorted by {self._order.value}{listed}"
        return f"{partitions}, {snapshot.counts()}\n{snapshot.trouble or second}"

    def _selected(self) -> Standstill | None:
        row = self.query_one(DataTable).cursor_row
        return self._rows[row] if 0 <= row < len(self._rows) else None

    def _draw_detail(self) -> None:
        selected = self._selected()
        if selected is None:
            detail = "No partition has a lag: every last stable offset has reached the high watermark."
        elif selected.oldest is None:
            detail = f"{selected.topic_partition}: the transaction has ended since."
        else:
            detail = _explained(selected.oldest, self._commands, self._snapshot.taken_at_ms)
        self.query_one("#detail", Static).update(detail)


def _explained(finding: HangingFinding, commands: OperatorCommands, now_ms: int) -> str:
    """Describe a transaction, with what to do first: a small terminal does not show the last lines."""
    advice = printable(finding.advice(commands))
    return "\n".join(
        [
            f"{finding.transaction.topic_partition}: {VERDICT_WORDS[finding.verdict]}, because "
            f"{printable(finding.why)}.",
            *([advice[0].upper() + advice[1:]] if advice else []),
            f"Partition: {finding.transaction.says(now_ms)}.",
            f"Coordinator: {finding.coordinator_says}.",
        ]
    )


def _cells(each: Standstill, now_ms: int) -> list[Text]:
    place, oldest = str(each.topic_partition), each.oldest
    verdict = "" if oldest is None else oldest.verdict.value
    width = _COLUMNS[0][1]
    return [
        # The end of a long name tells partitions apart.
        Text(place if len(place) <= width else f"…{place[-width + 1 :]}"),
        Text(str(each.last_stable_offset), justify="right"),
        Text(str(each.lag), justify="right"),
        Text(str(len(each.opened)), justify="right"),
        Text("" if oldest is None else waited_text(each, now_ms), justify="right"),
        Text(verdict, style=_STYLES.get(verdict, "")),
        Text("" if oldest is None else one_line(oldest.transactional_id or "")),
    ]
