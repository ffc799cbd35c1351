"""The same pages as files, for a ticket: `eos-kafka console --once --out FOLDER`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker_core.types import counted
from spark_eos.admin.console import pages
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.follow import DEFAULT_LAST_OFFSETS
from spark_eos.admin.console.links import FileLinks
from spark_eos.admin.output import ExitCode
from spark_eos.errors import EosKafkaError, OptionError

# Of each kind: a ticket is about the oldest ones.
MOST_PAGES: Final = 50


def write_once(chosen: argparse.Namespace) -> int:
    """Look at the cluster once and write the pages."""
    links = FileLinks(MOST_PAGES)
    documents = Documents(chosen, links, suspect_seconds=0)
    folder: Path = chosen.out
    try:
        documents.collector.cycle()
        problem = documents.collector.snapshot.problems.get("metadata")
        if problem is not None:
            raise EosKafkaError("The cluster could not be read", checked=problem)
        overview = documents.overview()
        found: list[tuple[str, str, str, Callable[[], dict[str, Any]]]] = []
        # The overview has named what has a page; these pages name no further ones.
        for place, name in list(links.partitions.items()):
            look = _later(documents.partition, *place, DEFAULT_LAST_OFFSETS)
            found.append(("partition", str(place), name, look))
        for id_, name in list(links.transactions.items()):
            found.append(("transaction", id_, name, _later(documents.transaction, id_)))
        for (prefix, query), name in list(links.queries.items()):
            found.append(("query", query, name, _later(documents.query, prefix, query)))
        links.close()
        _write(folder, "index.html", pages.page("overview", "Transactions", overview))
        for kind, title, name, look in found:
            try:
                document = look()
            except EosKafkaError as error:
                document = {"error": str(error), "poll": documents.poll()}
            _write(folder, name, pages.page(kind, title, document))
        for name in pages.ASSETS:
            _write(folder / "assets", name, pages.asset(name))
    finally:
        documents.close()
    print(folder / "index.html")
    print(
        f"{counted(len(found) + 1, 'page')} written, with {counted(documents.budget.total, 'request')}.",
        file=sys.stderr,
    )
    return ExitCode.DONE


def _later(look: Callable[..., dict[str, Any]], *arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: look(*arguments)


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"Cannot write the page: {error}", remedy="Give --out a folder that is writable") from error
