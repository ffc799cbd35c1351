"""The explorer visits every state of small worlds; its model answers as the broker's tables do."""

import gc
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from broker_core.coordinator.transactions.conditions import Claim
from broker_core.coordinator.transactions.decision_tables import END_V1, END_V2
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TransactionState
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.protocol.asks import Monotonic, Now
from tests.explorer.drivers import RunDriver
from tests.explorer.freezing import Freezer
from tests.explorer.invariants import INVARIANTS
from tests.explorer.model import DATA, Ending, Id, Model, Row, ended
from tests.explorer.process import Processes
from tests.explorer.search import explore, search
from tests.explorer.state import Bounds, task_id
from tests.explorer.world import Rules
from tests.explorer.worlds import DEFAULT, SHORT
from tests.support.short_form import chosen

S = TransactionState
DOCUMENTS = Path(__file__).parents[2] / "docs"
STATES = (S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
STORED = ProducerIdentity(7, 3)
CLAIMS = {
    Claim.CURRENT: STORED,
    Claim.PREVIOUS: ProducerIdentity(7, 2),
    Claim.OTHER_EPOCH: ProducerIdentity(7, 0),
    Claim.FOREIGN: ProducerIdentity(9, 3),
}
NAME = task_id(0, 0)
# These end before a second driver comes, within seconds.
WORLDS = [name for name in DEFAULT if name in SHORT]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("state", STATES)
def test_model_answers_end_txn_as_the_broker_does(
    state: TransactionState, claim: Claim, commit: bool, version: int
) -> None:
    table = END_V2 if version == 2 else END_V1
    verdict = table.resolve(state=state, pending=False, claim=claim, commit=commit)
    model = Model(level=2, ids=((NAME, Id(STORED, state)),), data=((Row(STORED, 0, 0),),))
    changed, answer = ended(model, Ending(OpenTransaction(NAME, CLAIMS[claim], version), commit))
    assert answer.code is verdict.error
    if verdict.next_state is None:
        assert changed == model
    else:
        known = changed.id(NAME)
        assert known is not None
        assert known.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        assert known.identity.producer_epoch == STORED.producer_epoch + (version == 2)
        assert changed.data[0][0].is_committed is commit


def test_transactions_of_v2_end_by_the_old_protocol_at_level_0() -> None:
    model = Model(level=0, ids=((NAME, Id(STORED, S.ONGOING)),), data=((Row(STORED, 0, 0),),))
    changed, answer = ended(model, Ending(OpenTransaction(NAME, STORED, 2), True))
    assert answer == (ErrorCode.NONE, STORED)
    assert changed.id(NAME) == Id(STORED, S.COMPLETE_COMMIT)
    assert DATA not in changed.forgotten


async def _rounds(numbers: Sequence[int]) -> int:
    total = 0
    for _ in numbers:
        total += await Now()
    return total


async def _other() -> float:
    return await Monotonic()


def _image(call: object) -> object:
    return Freezer().freeze(call)


def test_suspended_coroutines_are_compared_by_where_they_are_and_what_they_hold() -> None:
    first, second = _rounds([1, 1, 1]), _rounds([1, 1, 1])
    for each in (first, second):
        each.send(None)
    assert _image(first) == _image(second)
    # The variables are the same, and the loop is one round further.
    first.send(0)
    assert _image(first) != _image(second)
    second.send(0)
    assert _image(first) == _image(second)
    second.send(5)
    first.send(0)
    assert _image(first) != _image(second)
    for each in (first, second):
        each.close()


def test_another_function_has_another_image() -> None:
    first, second = _rounds([1]), _other()
    first.send(None)
    second.send(None)
    assert _image(first) != _image(second)
    first.close()
    second.close()


@pytest.mark.parametrize("name", chosen(WORLDS, "the explorer's worlds", of=1, long_form="make explore"))
def test_no_state_of_a_small_world_breaks_an_invariant(name: str) -> None:
    found = explore(DEFAULT[name])
    assert not found.wrong, "\n".join((found.wrong, *found.words))
    assert found.is_complete
    assert found.states > 1_000 and found.terminal > 50


def test_garbage_is_collected_after_a_search_and_not_during_one() -> None:
    seen: list[bool] = []
    rules = Rules(Processes(RunDriver), DEFAULT[WORLDS[0]])
    search(rules, limit=100, progress=lambda _: seen.append(gc.isenabled()))
    assert seen and not any(seen)
    assert gc.isenabled()


def test_documents_name_the_invariants_of_the_explorer() -> None:
    table = _section("contributing/how-we-know", "Explorer").split("| name | invariant |")[1].split("\n\n")[0]
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.*) \| .* \|$", table, re.MULTILINE)) == INVARIANTS
    named = {
        *_cells(_section("protocol/answers", "Every answer"), -2),
        *_cells(_section("spark/guarantees", "The failure table").split("### A decided")[0], -1),
    }
    assert named == {"-", *(f"`{name}`" for name in INVARIANTS)}


def _section(page: str, heading: str) -> str:
    text = (DOCUMENTS / f"{page}.md").read_text()
    return text.split(f"## {heading}\n", 1)[1].split("\n## ")[0]


def _cells(text: str, column: int) -> set[str]:
    """Return the cells of a column in all tables of a text."""
    lines = text.split("\n")
    rows = [line for before, line in pairwise(lines) if line.startswith("|") and before.startswith("|")]
    return {line.strip("|").split("|")[column].strip() for line in rows if not line.startswith("|---")}


def test_all_tasks_have_rows_in_each_micro_batch_without_faults() -> None:
    found = explore(Bounds(tasks=2, drivers=1, faults=0, micro_batches=3))
    assert (found.wrong, found.terminal) == ("", 1)
