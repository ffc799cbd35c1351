"""What happens at the points of `spark_eos.failpoints`, by rules in the environment.

`SPARK_EOS_FAILPOINTS` holds rules separated by `;`, each `point[/query]=action[@n][#m]`:

- action `kill` sends SIGKILL to this process, `raise` raises `FailpointError`, `hold:PATH` creates the file PATH and
  blocks until the process is killed or the file is removed;
- `/query` restricts the rule to the sink with that `transactionalIdPrefix`, or the source with that
  `kafka.client.id`, `@n` to micro-batch n, `#m` to the m-th
  time this process gets there (first is 1) since its present task or commit began. A rule acts at most once in a
  process, and with `once:PATH|` before the action at most once altogether: the process that creates PATH acts.

A value `@PATH` reads the rules from the file PATH at every visit, so that a test can arm and disarm them in processes
that live already.

Spark's Python workers inherit the environment. `tests/support/preload` installs the rules when a process starts.
"""

import os
import re
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

from spark_eos import failpoints

ENVIRONMENT_NAME: Final = "SPARK_EOS_FAILPOINTS"
_RULE: Final = re.compile(
    r"(?P<point>[a-z_.]+)(?:/(?P<query>[A-Za-z0-9_-]+))?=(?:once:(?P<once>[^|;]+)\|)?"
    r"(?P<action>kill|raise|hold:(?P<path>[^@#;|]+))(?:@(?P<micro_batch>\d+))?(?:#(?P<visit>\d+))?"
)
# In the order in which a micro-batch reaches them.
POINTS: Final = (
    *("driver.before_preflight", "source.before_plan", "source.before_read", "source.mid_read"),
    *("task.begin", "task.before_settle", "task.settled", "task.before_identity"),
    *("task.before_write", "task.mid_write", "task.before_flush", "task.flushed", "task.prepared"),
    *("driver.before_verify", "driver.taken_over", "driver.before_settle", "driver.settled"),
    *("driver.before_decide", "driver.decision_flushed", "driver.mid_decide", "driver.after_decide"),
    *("driver.mid_complete", "driver.after_complete", "driver.mid_sweep", "driver.after_sweep"),
    *("driver.abort", "driver.after_abort"),
    *("recovery.before_end_driver", "recovery.before_commit", "recovery.after_commit"),
)


class FailpointError(RuntimeError):
    """The failure that a rule with the action `raise` causes."""


class _FailpointRule(NamedTuple):
    point: str
    query: str | None
    action: str
    hold_path: str | None
    once_path: str | None
    micro_batch: int | None
    visit: int | None


class Failpoints:
    """The rules of one process and what has been reached so far."""

    def __init__(self, rules_text: str) -> None:
        self._path = Path(rules_text[1:]) if rules_text.startswith("@") else None
        self._rules = [] if self._path else _parse_all(rules_text)
        self._visits: dict[str, int] = {}
        self._query: str | None = None

    def enter(self, query: str) -> None:
        """Record that a task, a commit or the planning of a query begins in this process."""
        self._query = query
        self._visits.clear()

    def is_armed(self, point: str) -> bool:
        return any(rule.point == point and rule.query in (None, self._query) for rule in self._current())

    def reach(self, point: str, micro_batch: int | None = None) -> None:
        if point not in POINTS:
            raise FailpointError(f"{point!r} is not a failpoint; known failpoints are {', '.join(POINTS)}")
        visit = self._visits[point] = self._visits.get(point, 0) + 1
        for rule in self._current():
            fits = rule.point == point and rule.query in (None, self._query)
            fits = fits and rule.micro_batch in (None, micro_batch) and rule.visit in (None, visit)
            if fits and _first_to_create(rule.once_path):
                if rule in self._rules:
                    self._rules.remove(rule)
                _act(rule)
                return

    def _current(self) -> list[_FailpointRule]:
        if self._path is None:
            return list(self._rules)
        try:
            return _parse_all(self._path.read_text())
        except FileNotFoundError:
            # Without rules there is none, and the file may be deleted between a look and the read.
            return []


def _parse_all(rules_text: str) -> list[_FailpointRule]:
    return [_parse(text.strip()) for text in rules_text.split(";") if text.strip()]


def _parse(text: str) -> _FailpointRule:
    found = _RULE.fullmatch(text)
    if found is None or found["point"] not in POINTS:
        raise FailpointError(
            f"{ENVIRONMENT_NAME} is {text!r}; expected point[/query]=kill|raise|hold:PATH[@batch][#visit]"
        )
    micro_batch, visit = (int(found[name]) if found[name] else None for name in ("micro_batch", "visit"))
    return _FailpointRule(
        found["point"], found["query"], found["action"], found["path"], found["once"], micro_batch, visit
    )


def _first_to_create(path: str | None) -> bool:
    if path is None:
        return True
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _act(rule: _FailpointRule) -> None:
    if rule.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rule.action == "raise":
        raise FailpointError(f"failpoint {rule.point} reached")
    assert rule.hold_path is not None
    # A process that reads the file finds this process's id in it.
    fresh = f"{rule.hold_path}.{os.getpid()}"
    Path(fresh).write_text(str(os.getpid()))
    os.replace(fresh, rule.hold_path)
    while Path(rule.hold_path).exists():
        time.sleep(0.05)


def install(rules_text: str) -> None:
    """Let the points of this process, and of workers forked from it, act by these rules."""
    active = Failpoints(rules_text)
    vars(failpoints).update(reach=active.reach, is_armed=active.is_armed, enter=active.enter)
