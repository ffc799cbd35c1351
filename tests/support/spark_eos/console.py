"""The console of a test: served from threads of this process, asked with plain HTTP requests."""

import argparse
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from spark_eos.admin.console.documents import Documents
from spark_eos.admin.console.pages import LiveLinks
from spark_eos.admin.console.server import CHANGE_HEADER, ConsoleServer

DEADLINE_S = 30


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        """Return the JSON."""
        return json.loads(self.text)


@dataclass(frozen=True)
class RunningConsole:
    """A console and its address."""

    documents: Documents
    server: ConsoleServer

    @property
    def address(self) -> str:
        """Return the address of the overview."""
        return self.server.address

    @property
    def origin(self) -> str:
        """Return scheme, host and port."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def get(self, path: str = "", *, root: str | None = None, **headers: str) -> Answer:
        """Send a GET for a path below the token, or below another root."""
        return self.send("GET", (urlsplit(self.address).path if root is None else root) + path, "", headers)

    def post(self, path: str, document: object, **changed: str | None) -> Answer:
        """Send what a page sends for a change, with changed headers (None: left out)."""
        headers: dict[str, str | None] = {
            "Origin": self.origin,
            "Content-Type": "application/json",
            CHANGE_HEADER: "1",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.send("POST", urlsplit(self.address).path + path, json.dumps(document), sent)

    def send(self, method: str, path: str, body: str, headers: Mapping[str, str]) -> Answer:
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=DEADLINE_S)
        try:
            has_host = "Host" in headers
            connection.putrequest(method, path, skip_host=has_host)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body.encode())
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()


def arguments(address: str, decision_topic: str, **more: Any) -> argparse.Namespace:
    """Return the parsed options of the command."""
    given = {"command_config": None, "requests_per_second": 200.0, "by": "ann@desk", "once": False, "out": None}
    return argparse.Namespace(bootstrap_server=address, decision_topic=decision_topic, **{**given, **more})


@contextmanager
def running_console(address: str, decision_topic: str, *, allow_changes: bool = False) -> Iterator[RunningConsole]:
    """Run a console until the block ends; the first cycle has ended by then."""
    documents = Documents(arguments(address, decision_topic), LiveLinks(), suspect_seconds=0)
    documents.collector.cycle()
    collecting = threading.Thread(target=documents.collector.run)
    server = ConsoleServer(documents, port=0, allow_changes=allow_changes)
    serving = threading.Thread(target=server.run)
    collecting.start()
    serving.start()
    try:
        assert server.ready.wait(DEADLINE_S)
        yield RunningConsole(documents, server)
    finally:
        server.should_exit = True
        documents.collector.stop()
        serving.join(DEADLINE_S)
        collecting.join(DEADLINE_S)
        documents.close()
