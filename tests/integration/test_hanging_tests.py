"""A test that hangs where pytest-timeout cannot end it is ended and reported, and the others run."""

import pytest

pytest_plugins = ["pytester"]

PLUGINS = ("-p", "xdist", "-p", "timeout")

SHORT_LIMITS = """
    from tests.support import hanging_tests
    from tests.support.hanging_tests import *

    hanging_tests.GRACE_S = hanging_tests.TEARDOWN_S = 1
"""
# While the signal of pytest-timeout is blocked, the test hangs as in a call of a library that does not return.
HANGS = """
    import signal
    import time
    import pytest

    def hang():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)

    @pytest.fixture
    def hangs_afterwards():
        yield
        hang()

    def test_hangs_after_its_failure(hangs_afterwards):
        assert False

    @pytest.mark.timeout(0.5)
    def test_hangs():
        hang()

    def test_passes():
        pass
"""


@pytest.mark.usefixtures("no_installed_plugins")
def test_tests_that_hang_in_a_call_or_in_a_teardown_are_reported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SHORT_LIMITS)
    pytester.makepyfile(HANGS)
    result = pytester.runpytest_subprocess(*PLUGINS, "-n", "1", "--timeout", "30", timeout=60)
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        ["*crashed while running*::test_hangs_after_*", "*crashed while running*::test_hangs'*"]
    )
    # pytest-xdist writes the standard errors of its processes to its own.
    result.stderr.fnmatch_lines(["*Timeout (*"])


@pytest.mark.usefixtures("no_installed_plugins")
def test_process_that_has_finished_may_wait_for_the_others(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import faulthandler, os, sys

        faulthandler.dump_traceback_later = lambda seconds, **_: os.write(2, b"[limit]")
        faulthandler.cancel_dump_traceback_later = lambda: os.write(2, b"[no limit]")
        from tests.support.hanging_tests import *
    """)
    pytester.makepyfile("def test_passes():\n    pass")
    result = pytester.runpytest_subprocess(*PLUGINS, "-n", "1", "--timeout", "30", timeout=60)
    result.assert_outcomes(passed=1)
    # One limit for the test, and one for the end of the session.
    result.stderr.fnmatch_lines(["*[[]limit]*[[]no limit]*[[]limit]*[[]no limit]"])
