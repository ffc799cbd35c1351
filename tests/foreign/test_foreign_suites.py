"""A few tests of a foreign suite, for everyday runs; `make foreign` runs the suites whole."""

import json
from pathlib import Path

import pytest

from tests.foreign import known
from tests.foreign.known import BROKERS, judge
from tests.foreign.outcomes import counts
from tests.foreign.suites import SUITES

# Consumer groups and transactions, with kills of members; this many records take seconds.
CHOSEN = "^(TestGroupETL|TestTxnEtl)$"
RECORDS = "2000"


@pytest.mark.parametrize("kind", BROKERS)
def test_franz_go_moves_records_exactly_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not request.config.getoption("--apache"):
        pytest.skip("needs Go's module proxy and a compiler: `make conformance` runs it")
    monkeypatch.setenv("KGO_TEST_RECORDS", RECORDS)
    log = tmp_path / "log"
    outcomes = SUITES["franz-go"].run(kind, log, CHOSEN)
    assert counts(outcomes)["passed"] >= 2, log.read_text(encoding="utf-8")[-4000:]
    verdict = judge(outcomes, known.load().get("franz-go", ()), kind, is_whole=False)
    assert verdict.lines() == [], printed_by_go(log.read_text(encoding="utf-8"))


def printed_by_go(log: str) -> str:
    """Return the end of what the tests of `go test -json` printed."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return "".join(event.get("Output", "") for event in events)[-4000:]
