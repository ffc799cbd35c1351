"""A failed test is named when it fails, with the first line of its error, and not only after the last test."""

import pytest

pytest_plugins = ["pytester"]

FAILS = """
    import pytest

    @pytest.fixture
    def broken():
        raise OSError("no such file")

    def test_fails():
        assert 1 == 2, "the counts differ\\nand more"

    def test_setup(broken):
        pass

    @pytest.mark.xfail
    def test_known():
        assert False

    def test_passes():
        pass
"""


@pytest.mark.usefixtures("no_installed_plugins")
@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_a_failure_is_printed_before_the_next_tests(pytester: pytest.Pytester, processes: tuple[str, ...]) -> None:
    pytester.makepyfile(test_it=FAILS)
    result = pytester.runpytest_subprocess("-p", "tests.support.first_words", "-v", *processes, timeout=60)
    result.assert_outcomes(passed=1, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "FAILED test_it.py::test_fails: AssertionError: the counts differ",
            "FAILED test_it.py::test_setup (setup): OSError: no such file",
            "*test_passes*",
            "=*FAILURES =*",
        ]
    )
    assert sum(line.startswith("FAILED") for line in result.outlines) == 2 + 1  # once more in pytest's own summary


def test_a_file_that_cannot_be_imported_is_named_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import no_such_module")
    result = pytester.runpytest_inprocess("-p", "tests.support.first_words")
    result.stdout.fnmatch_lines(
        ["FAILED test_it.py (collection): *ModuleNotFoundError: No module named 'no_such_module'"]
    )
