"""The files that the short form runs on Apache Kafka: in turn, all of them."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.support.one_broker import SUITES, on_apache
from tests.support.short_form import chosen

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("suite", "parts"), [("spark", 2), ("kafka", 3)])
def test_sources_in_turn_run_every_file_on_apache_kafka(
    suite: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHES", "short")
    found = Counter[str]()
    for digest in range(parts):
        found.update(on_apache(suite, partial(chosen, digest=digest, notes=[])))
    paths = [path for folder in SUITES[suite] for path in (ROOT / folder).rglob("test_*.py")]
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    assert found == dict.fromkeys(names - {"tests/spark/test_source_beside_sparks.py"}, 1)
