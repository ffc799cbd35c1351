"""The JSON forms of records and actions are those of Python, in both directions."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from broker_core import Delay, Disconnect, Drop, Error, ErrorCode, Hold, Throttle
from broker_core.features.control.forms import ActionForm, Data, Item, action_of, data_of, form_of, record_of
from broker_core.features.control.handles import Handles, UnknownIdError

DATA = TypeAdapter(Data)
ACTIONS = TypeAdapter(ActionForm)
ITEMS = TypeAdapter(list[Item])


@given(st.none() | st.binary() | st.text().map(str.encode))
def test_data_keeps_its_bytes_over_json(data):
    found = data_of(DATA.validate_python(json.loads(json.dumps(form_of(data)))))
    assert (found.encode() if isinstance(found, str) else found) == data


def test_records_keep_their_parts():
    forms = ITEMS.validate_python(
        [
            "a",
            None,
            {"base64": "/w=="},
            {},
            {"key": "k", "value": {"base64": ""}, "headers": [["h", None]], "timestamp_ms": 1, "partition": 2},
            {"headers": {"h": "v"}},
        ]
    )
    *values, empty, full, headers = map(record_of, forms)
    assert values == ["a", None, b"\xff"]
    assert empty == (None, None, [], None, None)
    assert full == ("k", b"", [("h", None)], 1, 2)
    assert headers.headers == [("h", "v")]


@pytest.mark.parametrize("text", ["=", "a", "a b=", "____", "ä"])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(ValidationError, match="not Base64|expected"):
        DATA.validate_python({"base64": text})


def test_actions_are_those_of_python():
    released = threading.Event()
    forms = [
        ({"type": "Error", "code": "NOT_COORDINATOR"}, Error(ErrorCode.NOT_COORDINATOR)),
        ({"type": "Delay", "seconds": 0.5}, Delay(0.5)),
        ({"type": "Drop"}, Drop()),
        ({"type": "Disconnect"}, Disconnect()),
        ({"type": "Hold"}, Hold(released)),
        ({"type": "Throttle", "seconds": 2}, Throttle(2)),
    ]
    for form, action in forms:
        assert action_of(ACTIONS.validate_python(form), released) == action


def test_every_action_of_the_faults_has_a_form():
    from broker_core.broker.fault_injection import Action

    named = {each.__name__ for each in Action.__args__ if isinstance(each, type)}
    schema = ACTIONS.json_schema()
    assert set(schema["discriminator"]["mapping"]) == named


@pytest.mark.parametrize("seconds", [-1, 2**31 / 1000, float("inf"), float("nan")])
def test_throttle_has_a_time_that_an_answer_can_have(seconds):
    with pytest.raises(ValueError, match="Throttle"):
        Throttle(seconds)


def test_ids_are_not_used_again():
    handles = Handles("snapshot", 2)
    first, second = handles.add("a"), handles.add("b")
    with pytest.raises(RuntimeError, match="there are 2 snapshots"):
        handles.reserve()
    assert handles.remove(first) == "a"
    with pytest.raises(UnknownIdError, match=f"there is no snapshot '{first}'; there are {second}"):
        handles.get(first)
    assert handles.add("c") not in (first, second)
    assert [item for _, item in handles.items()] == ["b", "c"]
