"""A task's detection of worker reuse."""

import pytest

from spark_eos.runtime import REAL
from spark_eos.worker_memory import is_worker_kept


@pytest.mark.parametrize(("value", "kept"), [("1", True), (None, False)])
def test_task_learns_from_the_python_daemon_whether_its_worker_is_reused(
    monkeypatch: pytest.MonkeyPatch, value: str | None, kept: bool
) -> None:
    if value is None:
        monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    else:
        monkeypatch.setenv("SPARK_REUSE_WORKER", value)
    assert is_worker_kept(REAL.process) is kept
