"""A broker with a schema registry for the tests of one file, and requests to it."""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker_core import EmbeddedBroker

for library in ("avro", "jsonschema", "proto_schema_parser"):
    pytest.importorskip(library, reason="needs the extra registry")

DEADLINE_S = 60
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as kafka:
        yield kafka


@pytest.fixture
def ask(kafka: EmbeddedBroker) -> Ask:
    """Return the status and the JSON body of a request."""

    def ask(method: str, path: str, body: Any = None, *, url: str | None = None) -> tuple[int, Any]:
        connection = HTTPConnection(urlsplit(url or kafka.schema_registry_url).netloc, timeout=DEADLINE_S)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
            response = connection.getresponse()
            content = response.read()
            if response.status == 204:
                return 204, None
            assert response.getheader("Content-Type", "").startswith("application/vnd.schemaregistry.v1+json")
            return response.status, content.decode() if path.endswith("/schema") else json.loads(content)
        finally:
            connection.close()

    return ask
