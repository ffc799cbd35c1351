"""The protocol's coroutines, performed at once on a cluster."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from spark_eos.runtime import REAL
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.performing import HasRuntime, perform
from spark_eos.sink.protocol import descriptions, log_fates, rerun_checks, settlement, verification
from spark_eos.sink.protocol.decision_log import DecisionLog

R = TypeVar("R")


def driven(function: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., R]:
    """Return a function that takes a cluster first, and performs a coroutine on it."""

    def performed(cluster: HasRuntime, *arguments: Any, **options: Any) -> R:
        return perform(cluster, function(*arguments, **options))

    return performed


settle = driven(settlement.settle)
fates_of = driven(settlement.fates_of)
end_all = driven(settlement.end_all)
must_task_write = driven(settlement.must_task_write)
logged_fates = driven(log_fates.logged_fates)
describe_prepared = driven(descriptions.describe_prepared)
verify = driven(verification.verify)


class LogOn:
    """The decision log of a query on one cluster, whose methods are performed at once; `log` is the protocol's own."""

    def __init__(self, cluster: HasRuntime, *arguments: Any, log: DecisionLog | None = None, **options: Any) -> None:
        self.cluster = cluster
        self.log = log or DecisionLog(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.log, name)
        if not inspect.iscoroutinefunction(member):
            return member
        return lambda *arguments, **options: perform(self.cluster, member(*arguments, **options))


def log_of(committer: Committer) -> LogOn:
    """Return the log of a committer, whose methods are performed at once."""
    return LogOn(committer.cluster, log=committer.own.log)


class Nowhere:
    """A cluster that nothing may be asked of."""

    runtime = REAL


def check_rows(*arguments: Any, **options: Any) -> None:
    """Compare rows, which asks Kafka nothing."""
    perform(Nowhere(), rerun_checks.check_rows(*arguments, **options))
