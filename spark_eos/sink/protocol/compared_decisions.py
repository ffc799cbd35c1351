"""The decisions of earlier runs that a run has found again, and compared with its rows.

The name of a write in `foreachBatch` follows from its topic, so a write whose topic was changed has another name. It
may find its micro-batch decided under the name that it had before the restart, and must not write it again. But a
function may make several writes, and the other name may belong to another write. That is certain if this run has
compared that decision, since a function makes its writes in the same order again. Otherwise a write that is known from
an earlier micro-batch goes on only if its rows are other ones: the order may have changed.
"""

from collections.abc import Iterable
from typing import Final

from spark_eos.sink.decision import Decision
from spark_eos.sink.protocol.asks import Compared, Monotonic, NoteCompared, Sleep

_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


async def note_compared(decision: Decision, run: str) -> None:
    await NoteCompared(_name(decision, run))


async def uncompared(decisions: Iterable[Decision], run: str) -> list[Decision]:
    return [each for each in decisions if each.run != run and not await Compared(_name(each, run))]


async def is_compared_soon(decision: Decision, run: str) -> bool:
    """Return whether a run compares a decision within some seconds: threads may make writes at the same time."""
    deadline = await Monotonic() + _WAIT_SECONDS
    while not (is_compared := await Compared(_name(decision, run))) and await Monotonic() < deadline:
        await Sleep(_PAUSE_SECONDS)
    return is_compared


def _name(decision: Decision, run: str) -> str:
    """Return a name without the revision, which the run may have raised since."""
    return repr((decision.prefix, decision.query, decision.run, *decision.rank[:2], decision.decided_at_ms, run))
