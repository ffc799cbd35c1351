"""The check of pyarrow and NumPy when a query starts."""

import sys
from configparser import ConfigParser
from pathlib import Path

import numpy
import pyarrow
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.pandas.map_ops import PandasMapOpsMixin
from pyspark.sql.types import StructType

from spark_eos import EosKafkaDataSource, foreach_batch_sink
from spark_eos.column_libraries import NEEDED, check_column_libraries
from spark_eos.errors import UnsupportedError
from spark_eos.runtime import REAL
from spark_eos.worker_memory import is_worker_kept

ROOT = Path(__file__).parents[3]


def test_the_versions_are_those_of_the_extra():
    extras = ConfigParser()
    extras.read(ROOT / "setup.cfg")
    wanted = {f"{name}>={version[0]}" + (f".{version[1]}" if version[1] else "") for name, version in NEEDED.items()}
    assert set(extras["options.extras_require"]["arrow"].split()) == wanted


def test_extra_spark_brings_what_map_in_arrow_requires(monkeypatch: pytest.MonkeyPatch):
    """If PySpark does without pandas one day, so does the extra."""
    extras = ConfigParser(inline_comment_prefixes="#")
    extras.read(ROOT / "setup.cfg")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="Pandas >= 2.2"):
        PandasMapOpsMixin.mapInArrow(object.__new__(DataFrame), lambda batches: batches, "x int")
    assert "pandas>=2.2,<3" in extras["options.extras_require"]["spark"].split()


@pytest.mark.parametrize("name", NEEDED)
def test_missing_library_is_refused_with_the_command(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        UnsupportedError, match=rf"needs {name} [\d.]+ or newer, which is not installed.* `pip install 'pyarrow>="
    ):
        check_column_libraries()


def test_library_that_cannot_be_loaded_is_an_error_with_the_limits_of_memory(monkeypatch: pytest.MonkeyPatch):
    """As with 256 MiB for Spark's Python processes on the driver."""

    class Unloadable:
        @property
        def __version__(self) -> str:
            raise ImportError("libarrow.so.2600: failed to map segment from shared object")

    monkeypatch.setitem(sys.modules, "pyarrow", Unloadable())
    with pytest.raises(
        UnsupportedError, match=r"failed to map segment.*planner\.pythonExecution\.memory or .* to 512 MiB"
    ):
        check_column_libraries()


@pytest.mark.parametrize(("library", "found"), [(pyarrow, "18.1.0"), (numpy, "1.25.2")])
def test_old_library_is_refused_with_its_version(library, found: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "__version__", found)
    with pytest.raises(UnsupportedError, match=f"needs {library.__name__} [\\d.]+ or newer, and finds {found}"):
        check_column_libraries()


@pytest.mark.parametrize("found", ["19.0.0", "20.0.0.dev12", "26.0.1"])
def test_version_is_accepted(found: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pyarrow, "__version__", found)
    check_column_libraries()


@pytest.mark.parametrize(
    "use",
    [
        lambda source: source.schema(),
        lambda source: source.reader(StructType()),
        lambda source: source.streamReader(StructType()),
        lambda source: source.writer(StructType(), False),
        lambda source: source.streamWriter(StructType(), False),
        lambda _: foreach_batch_sink(topic="t")(None, 0),
    ],
    ids=["schema", "reader", "streamReader", "writer", "streamWriter", "foreach_batch_sink"],
)
def test_every_use_checks_the_libraries(use, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pyarrow, "__version__", "18.1.0")
    with pytest.raises(UnsupportedError):
        use(EosKafkaDataSource({}))


# The memory of a worker


@pytest.mark.parametrize(("value", "kept"), [("1", True), (None, False)])
def test_task_learns_from_the_python_daemon_whether_its_worker_is_reused(
    monkeypatch: pytest.MonkeyPatch, value: str | None, kept: bool
) -> None:
    if value is None:
        monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    else:
        monkeypatch.setenv("SPARK_REUSE_WORKER", value)
    assert is_worker_kept(REAL.process) is kept
