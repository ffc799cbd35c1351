"""The tasks of a micro-batch: they look for an earlier decision, and write into transactions that they leave open."""

from typing import Any, NamedTuple

from broker_core.types import TransactionState
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.messages import AlreadyCommitted, Empty, Place, Prepared, TaskMessage
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange
from spark_eos.sink.protocol import asks
from tests.explorer import model as kafka
from tests.explorer.drivers import LOOK, DriverName
from tests.explorer.model import DATA, QUERY, TIMEOUT_MS, Id, Model, Row
from tests.explorer.process import Input, Outcome, Processes
from tests.explorer.state import NO_PAST, App, Bounds, World, prefix_of, run_name, task_id

S = TransactionState


class Written(NamedTuple):
    """What the tasks of a micro-batch have done: the cluster after it, their messages, or why one failed."""

    model: Model
    messages: tuple[TaskMessage, ...] = ()
    courses: tuple[str, ...] = ()
    failure: Outcome | None = None


def write_rows(processes: Processes, bounds: Bounds, world: World, at: int, missed: str) -> Written | None:
    """Run the tasks of a micro-batch; the `missed` ones get an answer from before any decision.

    Return None if a task waits for a leader.
    """
    app, model = world.apps[at], world.model
    place = (QUERY, run_name(at), app.micro_batch)
    messages: list[TaskMessage] = []
    courses = []
    for split in range(bounds.tasks):
        if app.micro_batch < bounds.empty_micro_batches:
            messages.append(Empty(Place(*place, split), task_attempt_id=split))
            continue
        course = "WRITE"
        # What the first run finds was decided by itself.
        if at > 0 and not (missed == "all" or (missed == "first" and split == 0)):
            model, outcome = _look(processes, bounds, world._replace(model=model), at, split)
            if outcome.error:
                return Written(model, tuple(messages), failure=outcome)
            course = outcome.value
        courses.append(course)
        rows = (TopicRows(DATA, 1, 1000 * app.micro_batch + 100 * split + 10 * app.kind + app.write),)
        if course == "SKIP":
            messages.append(AlreadyCommitted(Place(*place, split), rows, task_attempt_id=split))
        elif model.is_away and split == 0:
            return None
        else:
            # After an election a marker may be lost, so the worker takes another id.
            elections = model.elections if split == 0 else 0
            name = task_id(at, split, prefix_of(at, bounds), elections)
            model, prepared = prepared_by_task(model, name, split, app, world.phase * kafka.PHASE_MS, rows)
            messages.append(Prepared(Place(*place, split), prepared, task_attempt_id=split))
    if bounds.has_empty:
        messages.append(Empty(Place(*place, bounds.tasks), task_attempt_id=bounds.tasks))
    return Written(model, tuple(messages), tuple(courses))


def _look(processes: Processes, bounds: Bounds, world: World, at: int, split: int) -> tuple[Model, Outcome]:
    """Let a task look for an earlier decision; nothing else happens meanwhile."""
    app, model = world.apps[at], world.model
    circumstances = world._replace(model=model).circumstances
    node = processes.root(driver_name(at, bounds))
    call = (LOOK, (split, app.micro_batch, write_name(bounds, app)))
    node = processes.step(node, Input("call", call, circumstances))
    while (outcome := processes.nodes[node].outcome) is None:
        ask = processes.nodes[node].ask
        assert ask is not None
        given: Any = None
        if isinstance(ask, asks.EndTransactions):
            answers = []
            for each in ask.opened:
                model, answer = kafka.ended(model, kafka.Ending(each, ask.commit))
                answers.append((each.transactional_id, answer))
            given = tuple(answers)
        elif not isinstance(ask, asks.ForgetCoordinators):
            given = kafka.read(model, ask, NO_PAST)
        node = processes.step(node, Input("answer", given, circumstances))
    return model, outcome


def driver_name(run: int, bounds: Bounds) -> DriverName:
    """Return what the processes of a run are made from."""
    return DriverName(run_name(run), bounds.policy, prefix_of(run, bounds))


def write_name(bounds: Bounds, app: App) -> str:
    """Return the name of a call of a batch write; a stream has none."""
    return f"w{app.write}" if bounds.writes > 1 else ""


def prepared_by_task(
    model: Model, name: str, split: int, app: App, now_ms: int, rows: tuple[TopicRows, ...]
) -> tuple[Model, PreparedTransaction]:
    """Return the model after a task has written its rows and left its transaction open."""
    known = model.id(name)
    if known is not None and known.state is S.COMPLETE_COMMIT and known.goes_on and model.level == 2:
        identity = known.identity
    else:
        model, taken = kafka.initialized(model, name)
        identity = taken.producer
    model = model.with_id(name, Id(identity, S.ONGOING, now_ms))
    log = model.data[split]
    place = WrittenRange(DATA, split, len(log), len(log), 1, model.topic_id)
    row = Row(identity, app.micro_batch, app.kind * 2 + app.write)
    model = model._replace(data=(*model.data[:split], (*log, row), *model.data[split + 1 :]))
    return model, PreparedTransaction(
        split, OpenTransaction(name, identity, model.level), TIMEOUT_MS, now_ms, (place,), rows
    )
