"""A client of the control port: a few lines of HTTP, as a test in another language has them."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from broker_core import EmbeddedBroker
from broker_core.features.control.server import ControlServer

DEADLINE_S = 60


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body, parsed."""
        return json.loads(self.body)


class ControlClient:
    """Requests to a control port; each has a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request as it is, and return the answer."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read())  # type: ignore[arg-type]
        finally:
            connection.close()

    def ask(self, name: str, /, **parameters: Any) -> Answer:
        """Send a GET, and return the answer."""
        return self.send("GET", f"/{name}?{urlencode(parameters)}" if parameters else f"/{name}")

    def call(self, name: str, /, **fields: Any) -> Answer:
        """Send a POST, and return the answer."""
        return self.send("POST", f"/{name}", json.dumps(fields).encode(), {"Content-Type": "application/json"})

    def get(self, name: str, /, **parameters: Any) -> Any:
        """Send a GET that succeeds, and return its result."""
        return _succeeded(self.ask(name, **parameters)).json

    def post(self, name: str, /, **fields: Any) -> Any:
        """Send a POST that succeeds, and return its result."""
        return _succeeded(self.call(name, **fields)).json


def _succeeded(answer: Answer) -> Answer:
    assert answer.status in (200, 201), answer
    return answer


class Controlled(NamedTuple):
    """A broker with a control port."""

    client: ControlClient
    kafka: EmbeddedBroker


@contextmanager
def controlled(**arguments: Any) -> Iterator[Controlled]:
    """Run a broker in this process with a control port."""
    with EmbeddedBroker(**arguments) as kafka, ControlServer(kafka) as server:
        yield Controlled(ControlClient(server.url), kafka)


def refused(answer: Answer, status: int, error: str, what_to_do: str = "") -> None:
    """Check that a request was refused with these words."""
    assert answer.status == status, answer
    problem = answer.json
    assert set(problem) == {"error", "what_to_do", "code"}
    assert error in problem["error"], problem
    assert what_to_do in problem["what_to_do"], problem
    assert problem["what_to_do"], problem
