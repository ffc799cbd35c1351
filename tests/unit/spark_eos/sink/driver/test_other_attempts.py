"""How a driver learns that another attempt may have left a transaction open."""

from types import SimpleNamespace

import pytest

from spark_eos.sink import messages
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place


@pytest.mark.parametrize(
    ("attempt", "speculation", "expected"),
    [(0, None, False), (0, "false", False), (1, None, True), (0, "true", True), (0, " TRUE", True)],
)
def test_task_reports_earlier_and_concurrent_attempts(
    monkeypatch: pytest.MonkeyPatch, attempt: int, speculation: str | None, expected: bool
) -> None:
    """A task without rows reports them too: an earlier attempt may have had rows."""
    found = {"spark.speculation": speculation}
    context = SimpleNamespace(attemptNumber=lambda: attempt, getLocalProperty=found.get, taskAttemptId=lambda: 7)
    monkeypatch.setattr(messages, "TaskContext", SimpleNamespace(get=lambda: context))
    for message in (Empty(Place("q", "run1", 0, 0)), AlreadyCommitted(Place("q", "run1", 0, 0))):
        assert message.has_other_attempts is expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([4, 5, 6], False),
        ([6, 4, 5], False),
        ([9], False),
        ([None, None], False),
        ([4, 5, 9], True),
        ([4, None, 8], True),
    ],
)
def test_attempts_of_a_retried_stage_are_detected_by_their_ids(ids: list[int | None], expected: bool) -> None:
    reports = [Empty(Place("q", "run1", 0, split), task_attempt_id=each) for split, each in enumerate(ids)]
    assert messages.show_other_attempts(reports) is expected
