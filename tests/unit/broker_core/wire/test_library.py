"""The check of kafka-python."""

import sys
from types import ModuleType

import pytest

from broker_core.wire.library import check_kafka_python


def version(number: str) -> ModuleType:
    found = ModuleType("kafka.version")
    found.__version__ = number  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("number", ["3.0.12", "3.0.13.dev1", "3.11.0"])
def test_kafka_python_3_is_accepted(number: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kafka.version", version(number))
    check_kafka_python()


@pytest.mark.parametrize("number", ["2.2.3", "3.0.11", "4.0.0", "2.0.2"])
def test_another_version_is_refused_with_the_command(number: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kafka.version", version(number))
    with pytest.raises(ImportError, match=rf"has version {number}\. Run `pip uninstall kafka-python-ng`.*,<4'"):
        check_kafka_python()


def test_a_library_that_is_missing_is_installed_and_no_other_removed(monkeypatch: pytest.MonkeyPatch):
    for name in ("kafka", "kafka.version"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match=r"which is not installed\. Run `pip install 'kafka-python>=3\.0\.12,<4'`"):
        check_kafka_python()


def test_a_library_without_its_version_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "kafka.version", None)
    with pytest.raises(ImportError, match="needs kafka-python 3.0.12 or newer.*cannot be imported"):
        check_kafka_python()
