"""The parsers of test runners' output, the judgement of runs and applications, and the recorded table."""

import json
from pathlib import Path

import pytest

from tests.foreign import known, results
from tests.foreign.__main__ import main
from tests.foreign.kills import DISORDERED, DOUBLED, MISSING
from tests.foreign.kills import judge as judge_counts
from tests.foreign.known import BROKERS, Known, judge
from tests.foreign.outcomes import (
    FAILED,
    PASSED,
    SKIPPED,
    Outcomes,
    counts,
    from_cargo,
    from_go,
    from_junit,
    from_librdkafka,
)
from tests.foreign.suites import SUITES, Suite, version_of
from tests.support.apache_kafka import Unavailable


def go(*events: tuple[str, str, str]) -> str:
    return "\n".join(
        json.dumps({"Action": action, "Package": f"example.com/client{package}", **({"Test": test} if test else {})})
        for action, package, test in events
    )


def test_go_events_become_outcomes():
    output = 'downloading\n{"Action":"pass","Tes downloading\n' + go(
        ("run", "", "TestA"),
        ("pass", "", "TestA"),
        ("run", "/sub", "TestA"),
        ("skip", "/sub", "TestA"),
        ("run", "", "TestB/one"),
        ("fail", "", "TestB/one"),
        ("fail", "", ""),
    )
    assert from_go(output, "example.com/client") == {"TestA": PASSED, "sub.TestA": SKIPPED, "TestB/one": FAILED}


def test_go_test_that_never_ends_has_failed():
    assert from_go(go(("run", "", "TestA"), ("output", "", "TestA")), "example.com/client") == {"TestA": FAILED}


def test_go_package_that_fails_without_a_test_has_failed():
    output = go(("run", "", "TestA"), ("pass", "", "TestA"), ("fail", "/broken", ""))
    assert from_go(output, "example.com/client") == {"TestA": PASSED, "broken.(package)": FAILED}


def test_cargo_lines_become_outcomes():
    output = """
     Running unittests src/lib.rs (target/debug/deps/x-1)
test parsing ... ok
     Running tests/client.rs (target/debug/deps/client-2)
test parsing ... FAILED
test panics - should panic ... ok
test test_socks5 ... ignored, no proxy
test result: FAILED. 1 passed; 1 failed
"""
    assert from_cargo(output) == {
        "src/lib.rs: parsing": PASSED,
        "client.rs: parsing": FAILED,
        "client.rs: panics": PASSED,
        "client.rs: test_socks5": SKIPPED,
    }


def test_librdkafka_summary_becomes_outcomes():
    output = """
%4|1|FAIL|0001_multiobj#producer-1| text | PASSED | 1s |
\x1b[31m### Test "0012_produce_consume" failed at 0012-produce_consume.c:57:dr_cb() at Mon Nov 23 09:39:53 2026: ###
|\x1b[32m <MAIN>                                   |     PASSED |   0.010s \x1b[0m|
|\x1b[32m 0001_multiobj                            |     PASSED |   0.010s \x1b[0m|
|\x1b[31m 0002_unkpart                             |     FAILED |   1.010s \x1b[0m|\x1b[31m test_2:3: it broke\x1b[0m
|\x1b[35m 0005_order                               |    RUNNING |   1.010s \x1b[0m|
|\x1b[36m 0016_client_swname                       |    SKIPPED |   0.000s \x1b[0m|\x1b[36m not running in trivup\x1b[0m
|\x1b[36m 0022_consume_batch_local                 |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Filtered due to negative test flags\x1b[0m
|\x1b[36m 0045_subscribe_update_topic_remove       |    SKIPPED |   0.000s \x1b[0m|\x1b[36m \x1b[0m
"""  # noqa: E501
    assert from_librdkafka(output) == {
        "0001_multiobj": PASSED,
        "0002_unkpart": FAILED,
        "0005_order": FAILED,
        "0012_produce_consume": FAILED,
        "0016_client_swname": SKIPPED,
    }


def test_junit_cases_become_outcomes():
    text = """<testsuites><testsuite>
<testcase classname="t.C" name="a"/><testcase classname="t" name="b"><failure/></testcase>
<testcase classname="t" name="c"><skipped/></testcase><testcase classname="t" name="d"/>
<testcase classname="t" name="d"><error/></testcase>
</testsuite></testsuites>"""
    assert from_junit(text) == {"t.C.a": PASSED, "t.b": FAILED, "t.c": SKIPPED, "t.d": FAILED}


def test_counts_add_up():
    assert counts({"a": PASSED, "b": PASSED, "c": SKIPPED}) == {"run": 3, PASSED: 2, FAILED: 0, SKIPPED: 1}


@pytest.mark.parametrize(
    ("outcomes", "entries", "unlisted", "outdated"),
    [
        pytest.param({"a": PASSED}, [], [], [], id="nothing failed"),
        pytest.param({"a": FAILED}, [], ["a"], [], id="not in the list"),
        pytest.param({"a": FAILED}, [Known("a", "why")], [], [], id="in the list"),
        pytest.param({"a": FAILED}, [Known("a", "why", ("apache",))], ["a"], [], id="in the list for the other broker"),
        pytest.param({"a": PASSED}, [Known("a", "why")], [], ["a"], id="does not fail any more"),
        pytest.param({"a": PASSED}, [Known("b", "why")], [], ["b"], id="is not there any more"),
        pytest.param({"a": PASSED}, [Known("a", "why", sometimes=True)], [], [], id="fails sometimes"),
        pytest.param({"a": FAILED, "a/b": FAILED}, [Known("a/b", "why")], [], [], id="parent of a subtest"),
        pytest.param({"a": FAILED, "a/b": PASSED}, [], ["a"], [], id="parent that failed by itself"),
    ],
)
def test_runs_are_compared_with_the_list(
    outcomes: Outcomes, entries: list[Known], unlisted: list[str], outdated: list[str]
):
    verdict = judge(outcomes, entries, "broker_core")
    assert (verdict.unlisted, verdict.outdated) == (unlisted, outdated)
    assert len(verdict.lines()) == len(unlisted) + len(outdated)
    assert verdict.is_good == (not verdict.lines())


def test_run_of_some_tests_judges_only_those():
    entries = [Known("a", "why"), Known("b", "why")]
    assert judge({"a": PASSED}, entries, "apache", is_whole=False).outdated == ["a"]


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        pytest.param(["1 x", "2 y", "3 z"], set(), id="as written"),
        pytest.param(["1 x", "3 z"], {MISSING}, id="one is missing"),
        pytest.param(["1 x", "2 y", "2 y", "3 z"], {DOUBLED}, id="one is there twice"),
        pytest.param(["1 x", "2 y", "3 z", "4 z"], {DOUBLED}, id="one was counted twice"),
        pytest.param(["2 y", "1 x", "3 z"], {DISORDERED}, id="two are exchanged"),
        pytest.param([], {MISSING}, id="nothing was written"),
    ],
)
def test_counts_of_killed_applications_are_judged(seen: list[str], broken: set[str]):
    outcomes = judge_counts({"key": ["x", "y", "z"]}, {"key": seen})
    assert {each for each, outcome in outcomes.items() if outcome == FAILED} == broken
    assert len(outcomes) == 3


def test_command_fails_for_an_unlisted_failure_and_says_why_a_suite_was_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def unavailable(*_: object) -> Outcomes:
        raise Unavailable("Go is missing: no go on the PATH; install Go.")

    monkeypatch.setitem(SUITES, "rskafka", Suite("rskafka", "here", lambda *_: {"new failure": FAILED}))
    monkeypatch.setitem(SUITES, "franz-go", Suite("franz-go", "here", unavailable))
    assert main(["rskafka", "--broker", "broker_core", "--only", "new"], tmp_path) == 1
    assert "failed, and not in known_failures.json: new failure" in capsys.readouterr().out
    assert main(["franz-go", "--broker", "broker_core"], tmp_path) == 3
    assert "franz-go on broker_core: skipped: Go is missing" in capsys.readouterr().out


def test_page_has_the_recorded_results():
    text = results.PAGE.read_text(encoding="utf-8")
    assert results.page(text, results.load(), known.load()) == text, (
        "record runs with: python -m tests.foreign SUITE --write"
    )


def test_recorded_failures_are_known():
    for name, brokers in results.load().items():
        assert brokers.keys() <= {*BROKERS}
        for broker, result in brokers.items():
            listed = {each.test for each in known.load().get(name, ()) if broker in each.brokers}
            parents = {each for each in result["failures"] if any(f"{each}/" in other for other in result["failures"])}
            assert set(result["failures"]) - listed - parents == set(), f"{name} on {broker}"


def test_known_failures_are_of_suites_and_have_reasons():
    for name, entries in known.load().items():
        assert name in SUITES
        assert [
            each.test for each in entries if len(each.reason.split()) < 3 or not {*each.brokers} <= {*BROKERS}
        ] == []
        assert len({each.test for each in entries}) == len(entries)


def test_every_suite_has_a_pinned_version():
    assert [name for name in SUITES if not version_of(name)] == []
