"""The calls of drivers: their asks are answered, and Spark goes on from how they end."""

from collections.abc import Iterator
from typing import Any

from spark_eos.open_transaction import EndAnswer
from spark_eos.sink.protocol import asks
from tests.explorer import model as kafka
from tests.explorer.drivers import ABORT, COMMIT
from tests.explorer.invariants import (
    after_decision,
    unjustified,
    wrong_commit,
    wrong_decision,
    wrong_end,
    wrong_intervention,
    wrong_take_over,
)
from tests.explorer.model import PATIENCE_MS, Ending, Model, Past, Row
from tests.explorer.process import Input, Outcome, Processes
from tests.explorer.state import (
    NO_PAST,
    OPERATOR,
    App,
    Bounds,
    Call,
    Step,
    World,
    brief,
    cleared,
    decisions_of,
    run_name,
    spend,
    with_app,
    with_node,
)
from tests.explorer.tasks import write_name


class Calls:
    """The calls in the worlds of some bounds."""

    def __init__(self, processes: Processes, bounds: Bounds) -> None:
        self.processes = processes
        self.bounds = bounds

    def _may(self, world: World, kind: str) -> bool:
        """Return whether a fault of this kind may happen."""
        return world.faults > 0 and (not self.bounds.kinds or kind in self.bounds.kinds)

    def _called(self, world: World, at: int, app: App, name: str) -> Step:
        write = write_name(self.bounds, app)
        given = Input("call", (name, (app.messages, app.micro_batch, write)), world.circumstances)
        node = self.processes.step(app.node, given)
        call = Call(is_superseded=app.at in app.superseded)
        app = app._replace(status="committing" if name == COMMIT else "aborting", call=call)
        return self._after(world, at, with_node(app, node), (name,))

    def _go_on(self, world: World, at: int, app: App) -> Iterator[Step]:
        ask = self.processes.nodes[app.node].ask
        assert ask is not None
        if app.call.unsent:
            yield from self._end_some(world, at, app)
        elif isinstance(ask, asks.InitProducerId | asks.StartDecision | asks.AppendDecision | asks.EndDecision):
            yield from self._write(world, at, app, ask)
        else:
            yield from self._read(world, at, app, ask)

    def _read(self, world: World, at: int, app: App, ask: asks.KafkaAsk[Any]) -> Iterator[Step]:
        answer = kafka.read(world.model, ask, app.call.past)
        yield self._heard(world, at, app, ask, answer, ("answers", run_name(at), *brief(ask)))
        if not world.faults:
            return
        spent = spend(world, "unanswered")
        if self._may(world, "unanswered"):
            yield self._raised(spent, at, app, "unanswered", ("no answer to", run_name(at), *brief(ask)))
        if not self._may(world, "stale"):
            return
        for past in self._pasts(world, ask, app.call):
            stale = kafka.read(world.model, ask, past)
            if stale != answer:
                cut_off = app._replace(call=app.call._replace(past=past))
                words = ("a coordinator that is cut off answers", run_name(at), *brief(ask), *brief(past))
                yield self._heard(spend(world, "stale"), at, cut_off, ask, stale, words)

    def _pasts(self, world: World, ask: asks.KafkaAsk[Any], call: Call) -> Iterator[Past]:
        if isinstance(ask, asks.CommittedOffsets) and not call.has_agreed:
            for name, old in sorted(world.past, key=repr):
                if name == ask.group_id:
                    yield Past(pointers=((name, old),))
        elif isinstance(ask, asks.DescribeTransactions):
            for name, old in sorted(world.past, key=repr):
                if name in ask.transactional_ids:
                    yield Past(ids=((name, old),))

    def _heard(
        self, world: World, at: int, app: App, ask: asks.KafkaAsk[Any], answer: Any, words: tuple[Any, ...]
    ) -> Step:
        """Give an answer to a process, and note what it knows from then on."""
        if isinstance(answer, tuple) and answer[:1] == ("raise",):
            return self._raised(world, at, app, answer[1], words)
        call = app.call
        if isinstance(ask, asks.DescribeTransactions):
            stale = {name for name, _ in call.past.ids}
            fresh = [name for name in ask.transactional_ids if name not in stale]
            lost = {
                (name, row.identity)
                for name in fresh
                for rows in (*world.model.data, *world.model.gone)
                for row in rows
                if row.is_committed is False and _is_of(name, row, world.model)
            }
            call = call._replace(
                heard=call.heard | {(name, world.phase) for name in ask.transactional_ids}, lost=call.lost | lost
            )
        if isinstance(ask, asks.CommittedOffsets) and not call.past.pointers:
            call = call._replace(is_superseded=app.at in app.superseded)
            if call.at_first_look is None:
                call = call._replace(at_first_look=len(decisions_of(world.model)))
        app = app._replace(call=call)
        node = self.processes.step(app.node, Input("answer", answer, world.circumstances))
        return self._after(world, at, with_node(app, node), words)

    def _raised(self, world: World, at: int, app: App, kind: str, words: tuple[Any, ...]) -> Step:
        given = Input("raise", kind, world.circumstances)
        step = self._after(world, at, with_node(app, self.processes.step(app.node, given)), words)
        return step._replace(is_fault=kind == "unanswered")

    def _write(self, world: World, at: int, app: App, ask: Any) -> Iterator[Step]:
        now_ms = self.processes.nodes[app.node].now_ms
        model, answer = self._written(world.model, ask, now_ms)
        changed, wrong = cleared(world, model), ""
        if isinstance(ask, asks.InitProducerId):
            wrong = wrong_take_over(world, at, app)
            # The process that has taken over is the newest driver.
            owners, superseded = app.owners | {app.at}, app.superseded - {app.at}
            app = app._replace(
                owners=owners, superseded=superseded, call=app.call._replace(has_taken_over=True, is_superseded=False)
            )
        if isinstance(ask, asks.EndDecision) and ask.commit:
            changed, wrong = after_decision(world.model, changed, self.bounds)
            app = app if at == OPERATOR else changed.apps[at]
        # An accepted write comes from the coordinator that the others know.
        if isinstance(ask, asks.AppendDecision) and not answer.code:
            app = app._replace(call=app.call._replace(past=app.call.past._replace(pointers=())))
        step = self._heard(changed, at, app, ask, answer, ("performs", run_name(at), *brief(ask)))
        yield step._replace(wrong=wrong or step.wrong)
        if self._may(world, "repeated") and isinstance(ask, asks.EndDecision):
            # For each step again, as in `_prepare`.
            self._written(world.model, ask, now_ms)
            repeated = spend(changed._replace(late=world.late | {ask}), "repeated")
            words = ("performs", run_name(at), *brief(ask), "and a copy of the request is on its way")
            yield self._heard(repeated, at, app, ask, answer, words)._replace(is_fault=True)
        if self._may(world, "unanswered"):
            spent = spend(world._replace(late=world.late | {ask}), "unanswered")
            words = ("no answer to", run_name(at), *brief(ask))
            if isinstance(ask, asks.EndDecision):
                unanswered = self._heard(spent, at, app, ask, EndAnswer(None), words)
            else:
                unanswered = self._raised(spent, at, app, "unanswered", words)
            yield unanswered._replace(is_fault=True)

    def _written(self, model: Model, ask: Any, now_ms: int) -> tuple[Model, Any]:
        match ask:
            case asks.InitProducerId():
                return kafka.initialized(model, ask.transactional_id)
            case asks.StartDecision():
                return kafka.started(model, ask.write, now_ms)
            case asks.AppendDecision():
                return kafka.appended(model, ask.write)
            case asks.EndDecision():
                write = ask.write
                ending = Ending(write.transaction, ask.commit)
                return kafka.ended(model, ending)
            case Ending():
                return kafka.ended(model, ask)
        raise AssertionError(ask)

    def _end_some(self, world: World, at: int, app: App) -> Iterator[Step]:
        """Let one of the coordinators answer; when all have, the process gets the answers."""
        call = app.call
        for each in call.unsent:
            rest = tuple(other for other in call.unsent if other is not each)
            model, answer = kafka.ended(world.model, each)
            wrong = wrong_end(world.model, model, each)
            known = world.model.id(each.transactional_id)
            is_late = known is not None and self.processes.nodes[app.node].now_ms >= known.started_at_ms + PATIENCE_MS
            if each.commit and world.model.is_away and is_late:
                world = world._replace(used=world.used | {"patience"})
            words = ("performs", run_name(at), *brief(each), answer.code.name if answer.code is not None else "")
            step = self._one_ended(cleared(world, model), at, app, each, rest, answer, words)
            yield step._replace(wrong=wrong or step.wrong)
            if self._may(world, "unanswered"):
                spent = spend(world._replace(late=world.late | {each}), "unanswered")
                words = ("no answer to", run_name(at), *brief(each))
                step = self._one_ended(spent, at, app, each, rest, EndAnswer(None), words)
                yield step._replace(is_fault=True)

    def _one_ended(
        self,
        world: World,
        at: int,
        app: App,
        each: Ending,
        rest: tuple[Ending, ...],
        answer: EndAnswer,
        words: tuple[Any, ...],
    ) -> Step:
        answers = tuple(sorted((*app.call.answers, (each.transactional_id, answer))))
        if answer.code is not None:
            # An accepted write, and a refused one, come from the coordinator that the others know.
            ids = tuple(past for past in app.call.past.ids if past[0] != each.transactional_id)
            app = app._replace(call=app.call._replace(past=app.call.past._replace(ids=ids)))
        if rest:
            app = app._replace(call=app.call._replace(unsent=rest, answers=answers))
            return Step(words, with_app(world, at, app))
        app = app._replace(call=app.call._replace(unsent=(), answers=()))
        node = self.processes.step(app.node, Input("answer", answers, world.circumstances))
        return self._after(world, at, with_node(app, node), words)

    def _after(self, world: World, at: int, app: App, words: tuple[Any, ...]) -> Step:
        """Go on to what the process asks for next, as far as that needs no choice."""
        wrong = ""
        while True:
            node = self.processes.nodes[app.node]
            if node.outcome is not None:
                return self._over(world, at, app, node.outcome, words)
            ask = node.ask
            assert ask is not None
            if isinstance(ask, asks.ForgetCoordinators):
                past = app.call.past
                ids = tuple(each for each in past.ids if each[0] not in ask.transactional_ids)
                pointers = () if ask.group_id is not None else past.pointers
                has_agreed = app.call.has_agreed and ask.group_id is None
                app = app._replace(call=app.call._replace(past=Past(ids, pointers), has_agreed=has_agreed))
                given = Input("answer", None, world.circumstances)
            elif isinstance(ask, asks.AgreeOnCoordinator):
                # Where brokers differ, the look-up finds the coordinator that most of them name.
                call = app.call._replace(past=app.call.past._replace(pointers=()), has_agreed=True)
                app = app._replace(call=call)
                given = Input("answer", None, world.circumstances)
            elif isinstance(ask, asks.ReadRecords | asks.ReplacedTopics):
                # What lies at an offset does not change. Whatever may happen between this answer and the one before it
                # may happen before both.
                answer = kafka.read(world.model, ask, NO_PAST)
                if isinstance(ask, asks.ReplacedTopics):
                    app = app._replace(call=app.call._replace(remade=world.model.remade))
                given = Input("answer", answer, world.circumstances)
            elif isinstance(ask, asks.EndTransactions):
                if ask.opened:
                    unsent = tuple(Ending(each, ask.commit) for each in sorted(ask.opened))
                    app = app._replace(call=app.call._replace(unsent=unsent, answers=()))
                    wrong = wrong or wrong_commit(world, app, ask)
                    break
                given = Input("answer", (), world.circumstances)
            else:
                if isinstance(ask, asks.EndDecision) and ask.commit:
                    wrong = wrong or wrong_decision(world, app, ask)
                break
            app = with_node(app, self.processes.step(app.node, given))
        return Step(words, with_app(world, at, app), wrong=wrong)

    def _over(self, world: World, at: int, app: App, outcome: Outcome, words: tuple[Any, ...]) -> Step:
        """Do what Spark does when a call has ended."""
        ended = app._replace(call=Call())
        words = (*words, "->", outcome.error or "done", outcome.message)
        wrong = ""
        if outcome.error and "EosKafkaError" not in outcome.families:
            wrong = f"reason: the protocol fails by itself: {outcome.error}: {outcome.message}"
        if at == OPERATOR:
            status = "stopped" if outcome.error else "done"
            wrong = wrong or wrong_intervention(world, outcome)
            return Step(words, with_app(world, at, ended._replace(status=status, nodes=())), wrong=wrong)
        if app.status == "aborting":
            stopped = ended._replace(status="stopped", messages=())
            if outcome.error:
                stopped = stopped._replace(reason=Outcome("abort:" + outcome.error, outcome.families, outcome.message))
            return Step(words, with_app(world, at, stopped), wrong=wrong)
        if outcome.error:
            wrong = wrong or unjustified(world, at, app, outcome, self.bounds)
            aborting = self._called(world, at, ended._replace(reason=outcome._replace(message="")), ABORT)
            return aborting._replace(saying=words, wrong=wrong or aborting.wrong)
        reported = world.reported
        if app.write + 1 < self.bounds.writes:
            # Spark notes the micro-batch when the whole function has returned.
            second = ended._replace(status="ready", write=app.write + 1, messages=())
            return Step(words, with_app(world, at, second.between_calls()), wrong=wrong)
        if app.micro_batch >= len(reported):
            reported = (*reported, app.kind)
        elif reported[app.micro_batch] != app.kind:
            # A zombie that finds its micro-batch committed by another one.
            wrong = wrong or "kept: other rows are taken for those written"
        following = ended._replace(messages=())
        if app.micro_batch + 1 >= self.bounds.micro_batches:
            following = following._replace(status="done")
        else:
            following = following._replace(status="ready", micro_batch=app.micro_batch + 1, kind=0, write=0)
        return Step(words, with_app(world, at, following.between_calls())._replace(reported=reported), wrong=wrong)


def _is_of(name: str, row: Row, model: Model) -> bool:
    known = model.id(name)
    return known is not None and known.identity.producer_id == row.identity.producer_id
