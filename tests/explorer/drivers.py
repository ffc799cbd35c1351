"""The coroutines of the protocol, for the explorer: a driver's commits, and a task's look for an earlier decision."""

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.protocol.action_table import Settlement
from spark_eos.sink.protocol.commit import abort, commit
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.rerun_checks import rolled_back_error
from spark_eos.sink.protocol.settlement import must_task_write
from spark_eos.sink.protocol.state import QueryRun
from tests.explorer.model import DECISIONS, PREFIXES, QUERY


class DriverName(NamedTuple):
    """What a driver object is made from; the processes of a run have no distinguishing marks."""

    run: str
    policy: str
    prefix: str = PREFIXES[0]


COMMIT: Final = "commit"
ABORT: Final = "abort"
LOOK: Final = "look"
OPERATE: Final = "operate"
OPERATOR: Final = DriverName("operator", "fail")


class RunDriver:
    """One process of one run of the query."""

    def __init__(self, name: DriverName) -> None:
        self._policy = OnLostTransaction(name.policy)
        self._log = DecisionLog(name.prefix, QUERY, DECISIONS.topic, run=name.run)
        self._own = QueryRun(self._log, name.prefix, QUERY, name.run, self._policy)

    @property
    def state(self) -> object:
        """Return what lasts from one call to the next."""
        return self._own.state, self._log, self._own.write

    def call(self, name: str, arguments: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of a call."""
        if name == OPERATE:
            return self._operate(*arguments)
        messages, micro_batch, write = arguments
        if name == LOOK:
            return self._look(messages, micro_batch, write)
        self._own.write = write
        return (commit if name == COMMIT else abort)(self._own, messages, micro_batch)

    async def _operate(self, action: OperatorAction, restart: Restart | None) -> Settlement:
        """Intervene in the newest decision, as `eos-kafka decisions complete|abort --query-is-dead` does."""
        cluster: Any = None
        operator = DecisionOperator(cluster, DECISIONS.topic, "", watch_seconds=0, is_known_dead=True, audit_id="")
        decision = await self._log.newest()
        assert decision is not None
        return (await operator.carried_out(await operator.planned(decision, action, restart))).settlement

    async def _look(self, split: int, micro_batch: int, write: str) -> str:
        """Decide what the task of a split has to do, as `TaskWriter` does."""
        earlier = await self._log.pointed(micro_batch, write)
        if earlier is None:
            return "WRITE"
        if earlier.micro_batch > micro_batch:
            raise rolled_back_error(earlier, micro_batch)
        return "WRITE" if await must_task_write(earlier, split, self._policy) else "SKIP"
