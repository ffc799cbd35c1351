"""A plugin that names each failed test when it fails, with the first line of its error.

pytest prints a letter, and the reason after the last test, which is minutes later.
"""

from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Write in the process that has the terminal: the others send their reports to it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FirstWords(config), "first words of failures")


class _FirstWords:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(f"{report.nodeid} ({report.when})" if report.when != "call" else report.nodeid, report)

    @pytest.hookimpl(trylast=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(f"{report.nodeid} (collection)", report)

    def _write(self, name: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {name}: {_first_line(report)}", red=True, flush=True)


def _first_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the error; that of a file that cannot be imported is the last of its text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and crash.message:
        return str(crash.message.strip().splitlines()[0])
    lines = [line for line in str(report.longrepr or "").splitlines() if line.strip()]
    return (lines[-1] if report.when == "collect" else lines[0]).strip() if lines else "no reason is given"
