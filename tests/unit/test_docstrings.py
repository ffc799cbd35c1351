"""Docstring examples that need no broker; the others run with the tests of their modules."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Run in tests/integration and tests/spark.
WITH_BROKERS = {
    "broker_core.aio",
    "broker_core.embedded",
    "broker_core.server.cluster_controls",
    "broker_core.testing.groups",
    "broker_core.testing.inspection_controls",
    "broker_core.testing.data_controls",
    "broker_core.features.recording.replay",
    "spark_eos.datasource",
    "spark_eos.progress_listener",
    "spark_eos.sink.dataframe_writes",
    "spark_eos.sink.task_placement",
}


def _with_examples() -> list[str]:
    paths = [path for package in ("broker_core", "spark_eos") for path in sorted((ROOT / package).rglob("*.py"))]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in paths
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    return [name for name in names if name not in WITH_BROKERS]


@pytest.mark.parametrize("name", _with_examples())
def test_docstring_examples_are_correct(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
