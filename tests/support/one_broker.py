"""The tests that both brokers have: which files the short form runs on Apache Kafka.

Of source, sink and command that is half of the files; `make test` runs the other half on `broker_core`. Of the behavior
suite and the clients, all of which `make test` runs on `broker_core`, it is a third. So the short forms of `make test`
and `make conformance` run every file at least once. `python -m tests.support.one_broker` prints those on Apache Kafka.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.both_brokers import BROKERS
from tests.support.short_form import chosen, is_in, leave_out, left_out

_ROOT: Final = Path(__file__).parents[2]
# It compares with Spark's own source, on both brokers at a time.
_ALWAYS: Final = frozenset({"tests/spark/test_source_beside_sparks.py"})
_LONG_FORM: Final = "make conformance"
_SPARK: Final = "spark"
# What says, in the tests of these folders, which of the brokers of a run a test has.
_BROKER: Final = ("broker_kind", "broker")
SUITES: Final = {
    _SPARK: ("tests/integration/spark_eos", "tests/spark"),
    # Here `broker_core` is compared with Apache Kafka: it answers in each run of `make test`.
    "kafka": ("tests/conformance", "tests/interop"),
}
# The short form runs one part of so many on Apache Kafka.
_PARTS: Final = {_SPARK: 2, "kafka": 3}


def on_apache(suite: str, choose: Callable[..., list[str]] = chosen) -> list[str]:
    """Return the files of tests of a suite that this run has on Apache Kafka."""
    found = (path for folder in SUITES[suite] for path in (_ROOT / folder).rglob("test_*.py"))
    files = sorted({path.relative_to(_ROOT).as_posix() for path in found} - _ALWAYS)
    where = "on Apache Kafka in place of broker_core" if suite == _SPARK else "on Apache Kafka"
    return choose(files, f"files of {' and '.join(SUITES[suite])} {where}", of=_PARTS[suite], long_form=_LONG_FORM)


def _is_left_to_make_test(item: pytest.Item) -> bool:
    return "apache" not in item.nodeid and item.path.relative_to(_ROOT).as_posix() not in _ALWAYS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test` runs; or, in the short form without --apache, what runs on Apache Kafka instead."""
    folders = [_ROOT / folder for folder in SUITES[_SPARK]]
    found = {item for item in items if is_in(item, *folders)}
    if config.getoption("--after-make-test"):
        leave_out(config, items, {item for item in found if _is_left_to_make_test(item)})
    elif found and not config.getoption("--apache") and os.environ.get("SEARCHES") == "short":
        elsewhere = {_ROOT / name for name in on_apache(_SPARK)}
        leave_out(config, items, {item for item in found if item.path in elsewhere and _has_broker(item)})


def _has_broker(item: pytest.Item) -> bool:
    parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return any(parameters.get(name) == BROKERS[0] for name in _BROKER)


def main() -> None:
    """Print the files, and what is left out to the standard error."""
    for suite in SUITES:
        print(*on_apache(suite))
    print(*_ALWAYS)
    for line in left_out():
        print(f"short form: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
