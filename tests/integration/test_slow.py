"""The report of slow tests names tests, fixtures, files, tiers and processes, with processor time of children too."""

import subprocess
import sys

import pytest

from tests.support.processes import ProcessorWatch, ticks_of_descendants
from tests.support.waiting import wait_until

pytest_plugins = ["pytester"]

BUSY = "import time\nwhile time.process_time() < 0.6: pass\nprint(flush=True)\ninput()"
WAITING = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
# Ends while its child still runs, as a Python process with a JVM does.
LEAVING = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read(1)
"""
TESTS = """
    import pytest
    import time

    @pytest.fixture(scope="module")
    def prepared():
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass

    def test_one(prepared):
        pass

    def test_two(prepared):
        pass
"""


@pytest.mark.usefixtures("no_installed_plugins")
def test_report_names_what_took_the_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess("-p", "xdist", "-p", "tests.support.slow", "-n", "1", timeout=60)
    result.assert_outcomes(passed=2)
    result.stdout.re_match_lines(
        [
            r"tiers: .*",
            r" +\d+\.\d\d +0\.[3-9]\d  test_it\.py \(2 tests\)",
            r"tests with their fixtures: .*",
            r" +\d+\.\d\d +0\.[3-9]\d  test_it\.py::test_one$",
            r"fixtures with their fixtures: .*",
            r" +\d+\.\d\d +0\.[3-9]\d  prepared \(module\) in test_it\.py$",
            r"processes: .*",
            r"  gw0: .* of processors in all",
        ]
    )


def test_processor_time_of_a_child_that_runs_is_counted() -> None:
    # This process has other children, which may end meanwhile.
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE) as parent:
        watch = ProcessorWatch(parent.pid, ticks_of_descendants)
        wait_until(lambda: watch.look() > 0.5, "the processor time of the child")
        parent.communicate(b"\n")


@pytest.mark.usefixtures("no_installed_plugins")
def test_processor_time_of_a_child_that_no_process_waits_for_is_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=f"""
        import subprocess, sys

        def test_leaving():
            subprocess.run([sys.executable, "-c", {LEAVING!r}])
        """
    )
    result = pytester.runpytest_subprocess("-p", "tests.support.slow", timeout=60)
    result.stdout.re_match_lines([r" +\d+\.\d\d +(0\.[5-9]|1\.)\d+  test_it\.py$"])
