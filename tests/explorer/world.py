"""What may happen in a world, step by step."""

from collections.abc import Iterator
from typing import Any

from broker_core.types import TransactionState
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.protocol import asks
from tests.explorer import drivers
from tests.explorer import model as kafka
from tests.explorer.calls import Calls
from tests.explorer.drivers import ABORT, COMMIT
from tests.explorer.invariants import after_decision, wrong_end, wrong_late_end
from tests.explorer.model import GROUPS, STRANGER, TIMEOUT_MS, Ending, Model
from tests.explorer.process import Input
from tests.explorer.state import (
    OPERATOR,
    App,
    Step,
    World,
    brief,
    cleared,
    decisions_of,
    run_name,
    spend,
    with_app,
    with_initialized,
)
from tests.explorer.tasks import driver_name, write_rows

S = TransactionState


class Rules(Calls):
    """What may happen in the worlds of some bounds."""

    def first(self) -> World:
        """Return the world in which the query starts."""
        splits = self.bounds.tasks + self.bounds.has_empty
        model = Model(self.bounds.level, data=((),) * splits)
        return World(model, (self._app(0, 0),), self.bounds.faults, switches=self.bounds.switches or 0)

    def _app(self, run: int, micro_batch: int) -> App:
        root = self.processes.root(driver_name(run, self.bounds))
        return App("ready", micro_batch, (root,) * self.bounds.processes)

    # What may happen

    def steps(self, world: World) -> Iterator[Step]:
        """Return everything that may happen next."""
        for at, app in enumerate(world.apps):
            turn = self._turn(world, at)
            if turn is None:
                continue
            if app.status == "ready":
                yield from self._plan(turn, at, app)
            elif not app.is_over:
                yield from self._go_on(turn, at, app)
            if not app.is_over and self._may(world, "dies"):
                yield self._die(turn, at, app)
        yield from self._intervene(world)
        yield from self._restart(world)
        yield from self._held_up(world)
        yield from self._applied_late(world)
        yield from self._timeouts(world)
        yield from self._offset_lost(world)
        yield from self._leaders(world)
        if self._may(world, "topic") and any(world.model.data):
            changed = spend(world._replace(model=kafka.with_new_topic(world.model)), "topic")
            yield Step(("the output topic is deleted and made again",), changed, is_fault=True)
        if self._may(world, "level"):
            level = 0 if world.model.level == 2 else 2
            changed = world._replace(model=kafka.with_level(world.model, level))
            yield Step(("the feature level becomes", level), spend(changed, "level"), is_fault=True)

    def _turn(self, world: World, at: int) -> World | None:
        """Return the world in which it is the turn of a run, or None if it may not be."""
        last = world.operator if world.turn == OPERATOR else world.apps[world.turn]
        if self.bounds.switches is None or at == world.turn or last is None or last.is_over:
            return world if self.bounds.switches is None else world._replace(turn=at)
        return world._replace(turn=at, switches=world.switches - 1) if world.switches else None

    def _intervene(self, world: World) -> Iterator[Step]:
        """Let an operator complete or abort the newest decision."""
        operator, turn = world.operator, self._turn(world, OPERATOR)
        if turn is None:
            return
        if operator is not None and not operator.is_over:
            yield from self._go_on(turn, OPERATOR, operator)
            if self._may(world, "dies"):
                yield self._die(turn, OPERATOR, operator)
        elif operator is None and self.bounds.has_operator and decisions_of(world.model):
            root = self.processes.root(drivers.OPERATOR)
            for choice in (
                (OperatorAction.COMPLETE, None),
                (OperatorAction.ABORT, Restart.REWRITE),
                (OperatorAction.ABORT, Restart.SKIP),
            ):
                given = Input("call", (drivers.OPERATE, choice), world.circumstances)
                app = App("committing", 0, (self.processes.step(root, given),))
                words = ("an operator begins:", *(each for each in choice if each is not None))
                yield self._after(turn, OPERATOR, app, words)._replace(is_optional=True)

    def _restart(self, world: World) -> Iterator[Step]:
        if len(world.apps) >= self.bounds.drivers or len(world.reported) >= self.bounds.micro_batches:
            return
        last = world.apps[-1]
        if last.is_over or (self.bounds.has_zombies and len(world.reported) >= self.bounds.zombies_after):
            app = self._app(len(world.apps), len(world.reported))
            words = "the query is started again" if last.is_over else "another driver is started beside it"
            yield Step(
                (words, run_name(len(world.apps))),
                world._replace(apps=(*world.apps, app)),
                is_optional=not last.is_over,
            )

    def _die(self, world: World, at: int, app: App) -> Step:
        late = set(world.late)
        if app.status != "ready":
            late |= set(self._on_their_way(app))
        dead = App(
            "dead", app.micro_batch, (), superseded=app.superseded, owners=app.owners, has_decided=app.has_decided
        )
        changed = with_app(world, at, dead)._replace(late=frozenset(late))
        return Step(("the driver dies", run_name(at)), spend(changed, "dies"), is_fault=True)

    def _on_their_way(self, app: App) -> Iterator[Any]:
        ask = self.processes.nodes[app.node].ask
        if app.call.unsent:
            yield from app.call.unsent
        elif isinstance(ask, asks.InitProducerId | asks.StartDecision | asks.AppendDecision | asks.EndDecision):
            yield ask

    def _timeouts(self, world: World) -> Iterator[Step]:
        for name, each in world.model.ids:
            if each.state is not S.ONGOING:
                if self._may(world, "expires"):
                    yield Step(
                        ("the coordinator forgets the id", name),
                        spend(cleared(world, kafka.forgotten(world.model, name), name), "expires"),
                        is_fault=True,
                    )
                continue
            is_due = each.started_at_ms + TIMEOUT_MS < world.phase * kafka.PHASE_MS
            if is_due or (self._may(world, "terminated")):
                changed = cleared(world, kafka.timed_out(world.model, name), name)
                words = "a transaction times out" if is_due else "an operator terminates a transaction"
                yield Step(
                    (words, name),
                    changed if is_due else spend(changed, "terminated"),
                    is_fault=not is_due,
                    is_optional=False,
                )
        if self._may(world, "time") and any(each.state is S.ONGOING for _, each in world.model.ids):
            changed = world._replace(phase=world.phase + 1)
            yield Step(("more time passes than any timeout",), spend(changed, "time"), is_fault=True)

    def _offset_lost(self, world: World) -> Iterator[Step]:
        """Let a group point to an earlier decision, or to none; only where the bounds name it."""
        if "offset" not in self.bounds.kinds or not world.faults:
            return
        for group, earlier in sorted(world.past, key=repr):
            now = world.model.pointer(group)
            if group in GROUPS.values() and group not in dict(world.model.pending) and now != earlier:
                changed = world._replace(model=kafka.moved_back(world.model, group, earlier))
                words = ("the group loses its newest offset and has", earlier.metadata if earlier else "none")
                yield Step(words, spend(changed, "offset"), is_fault=True)

    def _leaders(self, world: World) -> Iterator[Step]:
        """Let the leader of the first partition go away, and come back; only where the bounds name it.

        Ends that are on their way lose their markers whatever the sink does.
        """
        if world.model.is_away:
            yield Step(("the leader is back",), world._replace(model=kafka.leader_returned(world.model)))
        elif "leader" in self.bounds.kinds and world.faults and world.model.data[0]:
            is_ending = any(isinstance(each, Ending) for each in world.late)
            if not is_ending and not any(each.call.unsent for each in world.apps):
                changed = world._replace(model=kafka.leader_left(world.model))
                words = "the partition of task 0 loses its leader"
                yield Step((words,), spend(changed, "leader"), is_fault=True)

    def _held_up(self, world: World) -> Iterator[Step]:
        """Let another producer leave a transaction open in the first partition, and end it later."""
        rows = world.model.data[0]
        stranger = next((row for row in rows if row.identity == STRANGER), None)
        if stranger is None and self._may(world, "held") and not rows:
            words = "another producer begins a transaction in the partition of task 0"
            yield Step((words,), spend(world._replace(model=kafka.held_up(world.model)), "held"), is_fault=True)
        elif stranger is not None and stranger.is_committed is None:
            yield Step(
                ("the other producer commits",), world._replace(model=kafka.let_go(world.model)), is_optional=True
            )

    def _applied_late(self, world: World) -> Iterator[Step]:
        for each in sorted(world.late, key=repr):
            rest = world._replace(late=world.late - {each})
            model, _ = self._written(world.model, each, world.phase * kafka.PHASE_MS)
            changed = cleared(rest, model)
            wrong = ""
            has_decided = any(app.has_decided for app in world.apps)
            if isinstance(each, asks.InitProducerId) and has_decided:
                # Once a process has decided, it takes a lost id for the work of a newer driver.
                changed = changed._replace(used=changed.used | {"late take-over"})
            if isinstance(each, asks.EndDecision) and each.commit:
                changed, wrong = after_decision(world.model, changed, self.bounds)
                wrong = wrong or wrong_late_end(world.model, model, each)
            elif isinstance(each, Ending):
                wrong = wrong_end(world.model, model, each)
                if each.commit and world.model.is_away:
                    # No leader goes away while an end is on its way, so the sender has run out of patience.
                    changed = changed._replace(used=changed.used | {"patience"})
            yield Step(("a late request is applied", *brief(each)), changed, is_optional=True, wrong=wrong)

    # Commits

    def _plan(self, world: World, at: int, app: App) -> Iterator[Step]:
        """Run the tasks of a micro-batch, and begin the commit in one of the processes."""
        may_differ = at > 0 and self._may(world, "rows") and app.micro_batch == len(world.reported)
        for kind in [0, 1] if may_differ else [app.kind]:
            for missed in ["", "all", "first"] if at > 0 and self._may(world, "missed") else [""]:
                changed = with_app(world, at, app._replace(kind=kind))
                changed = changed if kind == app.kind else spend(changed, "rows")
                if missed and (not changed.faults or (missed == "first" and self.bounds.tasks < 2)):
                    continue
                changed = spend(changed, "missed") if missed else changed
                for step in self._prepare(changed, at, missed):
                    yield step._replace(is_fault=changed.faults < world.faults)

    def _prepare(self, world: World, at: int, missed: str) -> Iterator[Step]:
        app = world.apps[at]
        marks = app.marks
        for process in range(self.bounds.processes):
            if marks[process] in marks[:process]:
                continue
            # Again for each step: a replay counts the requests since the last step as those of this one.
            written = write_rows(self.processes, self.bounds, world, at, missed)
            if written is None:
                return
            changed = with_initialized(cleared(world, written.model), world.model)
            if written.failure is not None:
                failure = written.failure
                failed = app._replace(reason=failure._replace(message=""), messages=written.messages)
                words = ("a task fails", run_name(at), failure.error, failure.message)
                yield self._called(changed, at, failed, ABORT)._replace(saying=words)
                return
            begun = self._called(changed, at, app._replace(at=process, messages=written.messages), COMMIT)
            rows = f"rows {app.kind}{', an earlier decision is missed' if missed else ''}"
            place = f"{run_name(at)}.{process}" if self.bounds.processes > 1 else run_name(at)
            tasks = f"the tasks of micro-batch {app.micro_batch} ({rows}):"
            yield begun._replace(saying=(tasks, *written.courses, "; commit in", place))
