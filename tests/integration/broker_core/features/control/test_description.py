"""`/openapi.json` describes every route, in the words of the Python API."""

import html
import inspect
import json
import re

import pytest

import broker_core
from broker_core.broker.fault_injection import Fault
from broker_core.features.control.server import control_app
from broker_core.server.cluster_controls import BrokerHandle, ClockHandle, Outage
from broker_core.testing.groups import Group
from tests.support.broker_core.control_client import controlled

# What a route has besides the arguments of its method: the object the method belongs to, and parts of arguments.
OF_OBJECTS = {"id", "group", "broker", "topic", "partition", "transactional_id"}


@pytest.fixture(scope="module")
def control():
    with controlled() as found:
        yield found


@pytest.fixture(scope="module")
def description(control):
    return control.client.get("openapi.json")


def operations(description):
    return [
        (path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def python_of(operation):
    """Return the public method or property that an operation names, and None for a whole class."""
    name = operation["x-python"]
    for prefix, owner in (
        ("broker(...).", BrokerHandle),
        ("group(...).", Group),
        ("clock.", ClockHandle),
        ("Fault.", Fault),
        ("Outage.", Outage),
    ):
        if name.startswith(prefix):
            found = name.removeprefix(prefix)
            # An instance attribute is no attribute of the class.
            return getattr(owner, found, owner)
    return getattr(broker_core.EmbeddedBroker, name, None) or getattr(broker_core, name, None)


def fields_of(description, operation):
    if "requestBody" not in operation:
        return {each["name"] for each in operation.get("parameters", ())}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return {
        field
        for each in (schema, *schema.get("anyOf", ()))
        if "$ref" in each
        for field in description["components"]["schemas"][each["$ref"].rpartition("/")[2]].get("properties", ())
    }


def test_every_route_is_described_and_no_other(control, description):
    served = {
        (route.path, method.lower())
        for route in control_app(control.kafka).routes
        if route.include_in_schema
        for method in route.methods
    }
    assert {(path, method) for path, method, _ in operations(description)} == served
    assert len(served) > 45
    for path, method, _ in operations(description):
        wrong = "POST" if method == "get" else "GET"
        answer = control.client.send(wrong, path, b"{}", {"Content-Type": "application/json"})
        assert answer.status == 405, (path, answer)
        assert answer.json["what_to_do"] == f"Use {method.upper()}."


def test_every_operation_has_a_summary_and_the_refusals(description):
    for path, method, operation in operations(description):
        assert operation["operationId"] == path.removeprefix("/")
        assert operation["description"].endswith("."), path
        of_post = {"413", "415"} if method == "post" else set()
        refusals = operation["responses"].keys() - {"200", "201"}
        assert refusals == {"400", "403", "404", "409", "421"} | of_post, path
        assert "422" not in operation["responses"]
    assert "HTTPValidationError" not in json.dumps(description)


def test_operations_have_the_names_and_arguments_of_python(description):
    for path, _, operation in operations(description):
        name = operation["x-python"]
        if name.startswith("pytest "):
            continue
        python = python_of(operation)
        assert python is not None, f"{path}: there is no {name} in Python"
        if not inspect.isfunction(python):
            continue
        known = set(inspect.signature(python).parameters) | OF_OBJECTS
        if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(python).parameters.values()):
            known |= set(inspect.signature(broker_core.EmbeddedBroker.fault).parameters)
        extra = {"wait_for_hits": {"hits"}}.get(path.removeprefix("/"), set())
        assert fields_of(description, operation) <= known | extra, path


def test_docs_is_a_page_about_every_route_that_loads_nothing(control, description):
    answer = control.client.ask("docs")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = answer.body.decode()
    for path, method, operation in operations(description):
        assert f"{method.upper()} {path}</h3>" in page
        part = page.partition(f'<h3 id="{path[1:]}">')[2].partition("<h3")[0]
        assert [each for each in fields_of(description, operation) if f"<td>{each}</td>" not in part] == [], path
        assert html.escape(operation["description"]) in part
    assert not re.search(r"<script|https?:|src=", page)
    assert "style-src 'unsafe-inline'" in answer.headers["content-security-policy"]


def test_references_lead_somewhere(description):
    text = json.dumps(description)
    names = {each.partition('"')[0] for each in text.split("#/components/schemas/")[1:]}
    assert names <= description["components"]["schemas"].keys()
    assert description["openapi"].startswith("3.")


def test_description_is_made_when_it_is_asked_for(control, description):
    app = control_app(control.kafka)
    assert app.openapi_schema is None
    assert app.openapi() == app.openapi_schema == description
