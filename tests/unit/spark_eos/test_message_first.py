"""What PySpark's own function makes of an exception that leaves a method which Spark calls."""

import io
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.util import handle_worker_exception

from spark_eos import OptionError
from spark_eos.message_first import message_first

MESSAGE = ["spark_eos.errors.OptionError: No topic. Give one.", "See docs/reference/errors.md#optionerror"]
NAME, TRACE = "SPARK_HIDE_TRACEBACK", "Traceback (most recent call last):"


@message_first
class Called:
    def write(self, error: Exception) -> None:
        raise error from OSError("below")

    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a process of Spark, whose environment is put back."""
    monkeypatch.setenv(NAME, "")
    del os.environ[NAME]
    program = ModuleType("__main__")
    program.__spec__ = SimpleNamespace(name="pyspark.daemon")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", program)


def printed(method: str, error: Exception) -> list[str]:
    """Return the lines that Spark gets."""
    sent = io.BytesIO()
    try:
        result = getattr(Called(), method)(error)
        list(result)
    except Exception as raised:
        handle_worker_exception(raised, sent)
    sent.seek(0)
    assert read_int(sent) == -2
    return str(UTF8Deserializer().loads(sent)).splitlines()


@pytest.mark.parametrize("method", ["write", "read"])
def test_own_error_is_printed_by_its_message(method: str) -> None:
    assert printed(method, OptionError("No topic", remedy="Give one")) == MESSAGE


@pytest.mark.parametrize("method", ["write", "read"])
def test_other_error_keeps_its_frames(method: str) -> None:
    assert TRACE in printed(method, ValueError("a bug"))


def test_frames_are_shown_where_the_user_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "")
    lines = printed("write", OptionError("No topic", remedy="Give one"))
    assert TRACE in lines and "OSError: below" in lines and lines[-2:] == MESSAGE


def test_environment_of_a_program_of_the_user_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    printed("write", OptionError("No topic", remedy="Give one"))
    assert NAME not in os.environ
