"""Let a crash test stop the program at a named point; do nothing, at no cost, otherwise.

`SPARK_EOS_FAILPOINTS` holds rules separated by `;`, each `point=action[@n][#m]`:

- action `kill` sends SIGKILL to this process, `raise` raises `FailpointError`, `hold:PATH` creates the file PATH and
  blocks until the process is killed or the file is removed;
- `@n` restricts the rule to micro-batch n; `#m` to the m-th time this process gets there (first is 1). A rule acts at
  most once in a process, and with `once:PATH|` before the action at most once altogether: whoever creates PATH acts.

A value `@PATH` reads the rules from the file PATH at every visit, so that a test can arm and disarm them in processes
that live already.

Spark's Python workers inherit the environment in local mode; on a cluster `spark.executorEnv.*` carries it.
"""

import os
import re
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

ENVIRONMENT_NAME: Final = "SPARK_EOS_FAILPOINTS"
_RULE: Final = re.compile(
    r"(?P<point>[a-z_.]+)=(?:once:(?P<once>[^|;]+)\|)?(?P<action>kill|raise|hold:(?P<path>[^@#;|]+))"
    r"(?:@(?P<micro_batch>\d+))?(?:#(?P<visit>\d+))?"
)
POINTS: Final = frozenset({
    "task.begin", "task.before_write", "task.mid_write", "task.before_flush", "task.prepared",
    "driver.before_verify", "driver.before_decide", "driver.mid_decide", "driver.after_decide",
    "driver.mid_complete", "driver.after_complete", "driver.after_sweep", "driver.abort",
})


class FailpointError(RuntimeError):
    """Be the failure that a rule with the action `raise` asked for."""


class _Rule(NamedTuple):
    point: str
    action: str
    hold_path: str | None
    once_path: str | None
    micro_batch: int | None
    visit: int | None


class Failpoints:
    """Hold the rules of one process and what has been reached so far."""

    def __init__(self, rules_text: str) -> None:
        self._path = Path(rules_text[1:]) if rules_text.startswith("@") else None
        self._rules = [] if self._path else _parse_all(rules_text)
        self._visits: dict[str, int] = {}

    def is_armed(self, point: str) -> bool:
        """Say whether a rule waits for a point."""
        return any(rule.point == point for rule in self._current())

    def reach(self, point: str, micro_batch: int | None = None) -> None:
        """Act on the first rule that fits this visit."""
        if point not in POINTS:
            raise FailpointError(f"{point!r} is not a failpoint; known are {sorted(POINTS)}")
        visit = self._visits[point] = self._visits.get(point, 0) + 1
        for rule in self._current():
            fits = rule.point == point and rule.micro_batch in (None, micro_batch) and rule.visit in (None, visit)
            if fits and _first_to_create(rule.once_path):
                if rule in self._rules:
                    self._rules.remove(rule)
                _act(rule)
                return

    def _current(self) -> list[_Rule]:
        if self._path is None:
            return list(self._rules)
        return _parse_all(self._path.read_text()) if self._path.exists() else []


def _parse_all(rules_text: str) -> list[_Rule]:
    return [_parse(text.strip()) for text in rules_text.split(";") if text.strip()]


def _parse(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None or found["point"] not in POINTS:
        raise FailpointError(f"{ENVIRONMENT_NAME} has {text!r}; write point=kill|raise|hold:PATH[@batch][#visit]")
    micro_batch, visit = (int(found[name]) if found[name] else None for name in ("micro_batch", "visit"))
    return _Rule(found["point"], found["action"], found["path"], found["once"], micro_batch, visit)


def _first_to_create(path: str | None) -> bool:
    if path is None:
        return True
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _act(rule: _Rule) -> None:
    if rule.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rule.action == "raise":
        raise FailpointError(f"failpoint {rule.point} reached")
    assert rule.hold_path is not None
    Path(rule.hold_path).write_text(str(os.getpid()))
    while Path(rule.hold_path).exists():
        time.sleep(0.05)


def _never(_point: str) -> bool:
    """Say no: no rule is set."""
    return False


def _off(point: str, micro_batch: int | None = None) -> None:
    """Do nothing: no rule is set."""


# Read once, at import: a worker is forked from a daemon that has the driver's environment.
_rules_text = os.environ.get(ENVIRONMENT_NAME, "")
_active = Failpoints(_rules_text) if _rules_text else None
reach = _active.reach if _active else _off
is_armed = _active.is_armed if _active else _never
