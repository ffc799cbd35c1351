"""The same pages as files, for a ticket: `eos-kafka console --once --out FOLDER`."""

import argparse
from pathlib import Path
from typing import Any

from broker_core.types import TopicPartition, counted
from spark_eos.admin.console import pages
from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.log_views import DEFAULT_LAST_OFFSETS
from spark_eos.admin.output import ExitCode, say
from spark_eos.errors import EosKafkaError, OptionError


def write_once(chosen: argparse.Namespace) -> int:
    links = pages.FileLinks(most_pages=50)
    documents = Documents(chosen, links, suspect_seconds=0)
    folder: Path = chosen.out
    try:
        documents.collector.cycle()
        problem = documents.collector.snapshot.problems.get("metadata")
        if problem is not None:
            raise EosKafkaError("The cluster could not be read", checked=problem)
        overview = documents.overview()
        # The overview has named what has a page; these pages name no further ones.
        links.most = 0
        found = [(kind, *each) for kind, files in links.files.items() for each in files.items()]
        _write(folder, "index.html", pages.page("overview", "Transactions", overview))
        for kind, names, name in found:
            try:
                document = _document(documents, kind, names)
            except EosKafkaError as error:
                document = {"error": str(error), "poll": documents.poll()}
            title = str(TopicPartition(*names)) if kind == "partition" else names[-1]
            _write(folder, name, pages.page(kind, title, document))
        for name in pages.ASSETS:
            _write(folder / "assets", name, pages.asset(name))
    finally:
        documents.close()
    print(folder / "index.html")
    say(f"{counted(len(found) + 1, 'page')} written, with {counted(documents.budget.total, 'request')}.")
    return ExitCode.DONE


def _document(documents: Documents, kind: str, names: tuple[Any, ...]) -> dict[str, Any]:
    if kind == "partition":
        topic, partition = names
        return documents.partition(topic, partition, DEFAULT_LAST_OFFSETS)
    return documents.transaction(*names) if kind == "transaction" else documents.query(*names)


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"Cannot write the page: {error}", remedy="Give --out a folder that is writable") from error
