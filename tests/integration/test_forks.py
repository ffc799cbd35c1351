"""Processes that share one collection report each test, failure, skip and death as one process does."""

import pytest

pytest_plugins = ["pytester"]

PASSING = """
    import os, pathlib

    def test_one():
        print(f"ran in {os.getppid()}")

    def test_two():
        pass
"""
MIXED = """
    import pytest

    @pytest.fixture(scope="module")
    def once(request):
        calls = []
        yield calls
        assert len(calls) == 1, "torn down after the file's last test"

    def test_good(once):
        once.append(1)

    def test_bad():
        print("what it printed")
        assert 1 == 2, "the reason"

    def test_skipped():
        pytest.skip("not today")

    def test_captured(capfd):
        print("seen")
        assert capfd.readouterr().out == "seen\\n"
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "tests.support.forks", "--forks", "2", *arguments, timeout=60)


def test_every_test_of_every_file_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=PASSING, test_b=MIXED, test_c=PASSING)
    result = run(pytester, "-rs")
    result.assert_outcomes(passed=6, failed=1, skipped=1)
    result.stdout.re_match_lines([".*test_bad.*", ".*the reason", ".*what it printed"])
    result.stdout.fnmatch_lines(["SKIPPED*not today"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_tests_run_in_children_of_the_process_that_prints(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="import os\nOWN = os.getpid()\ndef test_it(): assert os.getppid() == OWN")
    run(pytester).assert_outcomes(passed=1)


def test_a_process_that_dies_is_a_failure_of_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="import os\ndef test_good(): pass\ndef test_deadly(): os._exit(3)", test_b=PASSING)
    result = run(pytester)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*a process ended in test_a.py::test_deadly*"])


def test_the_first_failure_ends_the_run_if_asked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="def test_bad(): assert 0\ndef test_later(): pass")
    result = run(pytester, "-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_one_process_runs_them_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="import os\nOWN = os.getpid()\ndef test_it(): assert os.getpid() == OWN")
    pytester.runpytest_subprocess("-p", "tests.support.forks", timeout=60).assert_outcomes(passed=1)
