"""The stubs of Kafka's messages are current, and mypy checks fields with them."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from mypy import api as mypy

from broker_core.broker.apis import SERVED
from tests.support.broker_core.full_requests import VERSIONS, full_requests
from tests.support.message_stubs import ROOT, field_type, stubs

STUBS = stubs()
KINDS = {"int": int, "str": str, "bool": bool, "float": float, "bytes": bytes, "UUID": UUID}


@pytest.mark.parametrize("path", STUBS, ids=str)
def test_a_stub_is_current(path: Path) -> None:
    written = (ROOT / path).read_text(encoding="utf-8")
    assert written == STUBS[path], "run `python -m tests.support.message_stubs`"


def test_mypy_checks_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "m.EndTxnRequest(producer_id=1, committed=True)": None,
        "m.EndTxnRequest(producer_identity=1)": "[call-arg]",
        "m.EndTxnRequest(producer_id='1')": "[arg-type]",
        "m.EndTxnRequest[3].decode(b'').producer_id + 1": None,
        "m.EndTxnRequest[3].decode(b'').producer_identity": "[attr-defined]",
        "m.EndTxnResponse().error_code = 'NONE'": "[assignment]",
        "m.ProduceRequest().topic_data[0].partition_data[0].records.hex()": "[union-attr]",
    }
    monkeypatch.setenv("MYPYPATH", str(ROOT / "stubs"))
    options = ["--strict", "--config-file=", "--cache-dir=/dev/null"]
    output, _, _ = mypy.run([*options, "-c", "\n".join(["from kafka.protocol import producer as m", *expected])])
    found = dict(re.findall(r"^<string>:(\d+): error: .*(\[.+\])$", output, re.MULTILINE))
    assert {line: found.get(str(number)) for number, line in enumerate(expected, 2)} == expected, output


def fits(value: object, field: object, name: str) -> bool:
    if value is None:
        return name.endswith("| None")
    name = name.removesuffix(" | None")
    if name == "bytes | bytearray | memoryview":
        return isinstance(value, bytes | bytearray | memoryview)
    if name.startswith("list["):
        return isinstance(value, list) and all(fits(each, field, name[5:-1]) for each in value)
    return isinstance(value, KINDS[name]) if name in KINDS else all_fit(value)


def all_fit(message: object) -> bool:
    fields = message._struct._fields  # type: ignore[attr-defined]
    wrong = [field.name for field in fields if not fits(getattr(message, field.name), field, field_type(field))]
    assert wrong == [], message
    return True


@pytest.mark.parametrize("name", VERSIONS)
def test_the_fields_of_a_decoded_request_have_the_types_of_the_stub(name: str) -> None:
    api = next(api for api in SERVED.values() if api.name == name)
    for version in VERSIONS[name]:
        request = full_requests(version, UUID(int=7))[name]()
        assert all_fit(api.request.decode(request.encode(version=version), version=version)), version
