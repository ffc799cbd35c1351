"""The documents of all pages: from the collector's snapshot, or looked up when a page wants them."""

import argparse
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from broker_core.types import IsolationLevel, TopicPartition, TransactionState, counted
from spark_eos.admin.console import pages, views
from spark_eos.admin.console.budget import RequestBudget
from spark_eos.admin.console.collector import SUSPECT_SECONDS, Collector
from spark_eos.admin.console.decision_tail import MicroBatch, QueryState
from spark_eos.admin.console.log_views import DEFAULT_LAST_OFFSETS, MarkerSearch, TimelineFollower
from spark_eos.admin.console.pages import LiveLinks
from spark_eos.admin.output import ExitCode, decision_document, say
from spark_eos.admin.parsers import options_of
from spark_eos.admin.timeline_page import document_of, summary_of
from spark_eos.admin.transactions_view import described
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import EosKafkaError, OptionError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import LATEST
from spark_eos.runtime import REAL, now_ms
from spark_eos.sink.naming import id_prefix, parse_task_id

_MOST_FOLLOWED: Final = 8
_MOST_MARKERS: Final = 24
_MOST_MICRO_BATCHES: Final = 40
_MOST_SWEPT: Final = 200
_ABORTED: Final = (TransactionState.PREPARE_ABORT.label, TransactionState.COMPLETE_ABORT.label)


class Documents:
    """The data of one console: a collector, and a client for what pages look up, which one thread uses at a time."""

    def __init__(
        self, chosen: argparse.Namespace, links: LiveLinks, *, suspect_seconds: float = SUSPECT_SECONDS
    ) -> None:
        self.chosen, self.links, self.clock = chosen, links, REAL.clock
        # A page waits for its data; a cluster that does not respond is reported soon.
        self._options = options_of(chosen, longest_wait_ms=15_000)
        self.commands = OperatorCommands((chosen.bootstrap_server,), chosen.command_config)
        self.budget = RequestBudget(chosen.requests_per_second, REAL)
        self._collecting = self.client()
        self.collector = Collector(self._collecting, chosen.decision_topic, suspect_seconds)
        self._client = self.client()
        self._lock = threading.Lock()
        # The pages that were looked at last.
        self._follower = lru_cache(_MOST_FOLLOWED)(partial(TimelineFollower, self.commands))
        self._overview = lru_cache(_MOST_FOLLOWED)(lambda _cycle, wanted: views.overview(self._view(), wanted))
        self._markers = MarkerSearch()

    def client(self) -> KafkaClient:
        return KafkaClient(self._options, self.budget.runtime())

    def close(self) -> None:
        """Close the connections; the collector's thread has ended."""
        self._collecting.close()
        with self._lock:
            self._client.close()

    # Pages.

    def overview(self, wanted: str = "") -> dict[str, Any]:
        """Return the overview; it is made once in a cycle."""
        self.collector.watch()
        return {**self._overview(self.collector.snapshot.cycle, wanted), "poll": self.poll()}

    def poll(self) -> dict[str, Any]:
        snapshot = self.collector.snapshot
        return {
            "cycle": snapshot.cycle,
            "at_ms": snapshot.at_ms,
            "now_ms": now_ms(self.clock),
            "scanned_at_ms": snapshot.scanned_at_ms,
            "scan_seconds": round(snapshot.scan_seconds, 3),
            "cycle_seconds": round(snapshot.cycle_seconds, 3),
            "requests_per_second": round(self.budget.recent_per_second, 1),
            "budget_per_second": self.budget.per_second,
            "requests": self.budget.total,
        }

    def partition(self, topic: str, partition: int, last: int = DEFAULT_LAST_OFFSETS) -> dict[str, Any]:
        self.collector.watch()
        topic_partition = TopicPartition(topic, partition)
        standstill = self.collector.snapshot.standstills.get(topic_partition)
        judged = () if standstill is None else standstill.opened
        with self._lock:
            follower = self._follower(topic_partition, last)
            timeline = follower.take(self._client, self.collector.snapshot.owner, judged)
            unread = follower.unread(timeline)
        document = document_of(timeline)
        for each in document["transactions"]:
            name = each["transactional_id"]
            each["href"] = None if name is None else self.links.page("transaction", id=name)
        view = self._view()
        return {
            "timeline": document,
            "summary": summary_of(timeline),
            "hanging": [views.finding_row(view, each) for each in judged if each.hangs],
            "last": last,
            "unread": unread,
            "poll": self.poll(),
        }

    def transaction(self, transactional_id: str) -> dict[str, Any]:
        self.collector.watch()
        with self._lock:
            coordinator_id, found = described(self._client, transactional_id)
        history = self.collector.history.matching(transactional_id).get(transactional_id, ())
        document = views.transaction_document(self._view(), transactional_id, coordinator_id, found, history)
        return {**document, "poll": self.poll()}

    def query(self, prefix: str, query: str) -> dict[str, Any]:
        """Return a query's page: its micro-batches from decisions and markers, and what it has open."""
        self.collector.watch()
        view, snapshot, name = self._view(), self.collector.snapshot, (prefix, query)
        state = snapshot.queries.get(name) or QueryState(prefix, query)
        opened = [each for each in snapshot.active if _is_of(each, name)]
        newest_first = list(reversed(state.micro_batches[-_MOST_MICRO_BATCHES:]))
        problem = self._search_markers(newest_first)
        newest = state.newest
        rows = [views.open_transaction(view, each) for each in sorted(opened)]
        return {
            **views.query_row(view, name, state, opened),
            "markers_problem": problem,
            "micro_batches": [self._micro_batch(each) for each in newest_first],
            "swept": self._swept(name),
            "transactions_open": {"count": len(rows), "rows": rows[: views.MOST_ROWS]},
            "decision": None if newest is None else decision_document(newest),
            "actions": self._decision_actions(state),
            "poll": self.poll(),
        }

    def _search_markers(self, micro_batches: list[MicroBatch]) -> str:
        places = self.collector.snapshot.places
        wanted = {end.topic_partition: LATEST for each in micro_batches for end in each.ends}
        wanted = {each: end for each, end in wanted.items() if each in places and places[each].leader_id >= 0}
        if not wanted:
            return ""
        try:
            with self._lock:
                ends = OffsetLookup(self._client, places).offsets(wanted, IsolationLevel.READ_UNCOMMITTED)
                self._markers.search(self._client, places, ends, micro_batches, _MOST_MARKERS)
        except EosKafkaError as error:
            return str(error)
        return ""

    def _micro_batch(self, each: MicroBatch) -> dict[str, Any]:
        markers = self._markers.of(each)
        commits = [marker.at_ms for marker in markers if marker.is_commit]
        aborts = [marker.at_ms for marker in markers if not marker.is_commit]
        known = ("micro_batch", "attempt", "run", "decided_at_ms", "is_abandoned")
        return {
            **{name: getattr(each.decision, name) for name in known},
            "started_at_ms": each.started_at_ms,
            "first_marker_ms": min(commits, default=None),
            "last_marker_ms": max(commits, default=None),
            "aborted_at_ms": max(aborts, default=None),
            "marked_completed_at_ms": each.decision.completed_at_ms,
            "markers": len(markers),
            "looked_for": len(each.ends),
            "transactions": each.transaction_count,
            "records": each.record_count,
        }

    def _swept(self, name: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the transactions of the query that were seen aborted: by a sweep, or at their timeout."""
        histories = self.collector.history.matching(id_prefix(*name))
        seen = [
            {"at_ms": each.at_ms, "id": views.id_of(self._view(), id_), "state": each.state}
            for id_, states in histories.items()
            if _is_of(id_, name)
            for each in states
            if each.state in _ABORTED
        ]
        return sorted(seen, key=lambda each: int(str(each["at_ms"])))[-_MOST_SWEPT:]

    def _decision_actions(self, state: QueryState) -> list[Mapping[str, Any]]:
        newest = state.newest
        if newest is None or newest.completed_at_ms is not None:
            return []
        names = {"prefix": state.prefix, "query": state.query}
        return [
            {"kind": "complete", **names},
            {"kind": "abandon", "restart": "rewrite", **names},
            {"kind": "abandon", "restart": "skip", **names},
        ]

    def _view(self) -> views.View:
        return views.View(self.collector.snapshot, self.links, self.commands, now_ms(self.clock))


def _is_of(transactional_id: str, name: tuple[str, str]) -> bool:
    task = parse_task_id(transactional_id)
    return task is not None and (task.prefix, task.query) == name


def write_once(chosen: argparse.Namespace) -> int:
    """Write the same pages as files, for a ticket, which is about the oldest ones of each kind."""
    links, folder = pages.FileLinks(most_pages=50), chosen.out
    with closing(Documents(chosen, links, suspect_seconds=0)) as documents:
        documents.collector.cycle()
        problem = documents.collector.snapshot.problems.get("metadata")
        if problem is not None:
            raise EosKafkaError("The cluster could not be read", checked=problem)
        overview = documents.overview()
        # The overview has named what has a page; these pages name no further ones.
        links.most = 0
        found = [(kind, *each) for kind, files in links.files.items() for each in files.items()]
        _write(folder, "index.html", pages.page("overview", "Transactions", overview))
        looks: dict[str, Callable[..., dict[str, Any]]] = {
            "partition": documents.partition,
            "transaction": documents.transaction,
            "query": documents.query,
        }
        for kind, names, name in found:
            try:
                document = looks[kind](*names)
            except EosKafkaError as error:
                document = {"error": str(error), "poll": documents.poll()}
            title = str(TopicPartition(*names)) if kind == "partition" else names[-1]
            _write(folder, name, pages.page(kind, title, document))
        for name in pages.ASSETS:
            _write(folder / "assets", name, pages.asset(name))
    print(folder / "index.html")
    say(f"{counted(len(found) + 1, 'page')} written, with {counted(documents.budget.total, 'request')}.")
    return ExitCode.DONE


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"Cannot write the page: {error}", remedy="Give --out a folder that is writable") from error
