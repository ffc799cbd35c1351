"""Since when partitions wait, by looks of which some have no answer."""

from broker_core.types import TopicPartition
from spark_eos.transactions.standstills import Ends, Standstills

PLACE = TopicPartition("t", 0)
STANDING: Ends = {PLACE: 3}


def test_look_without_an_answer_does_not_begin_the_wait_again() -> None:
    """A leader was away for a moment, or a broker was silent."""
    waiting = Standstills()
    waiting.note(STANDING, {PLACE: 5}, [PLACE], 1_000)
    waiting.note({}, {}, [PLACE], 2_000)
    waiting.keep_only([PLACE])
    assert not waiting.known, "what is not known now is not shown"
    for stable, now_ms, since_ms in ((STANDING, 3_000, 1_000), ({PLACE: 4}, 4_000, 4_000)):
        waiting.note(stable, {PLACE: 9}, [PLACE], now_ms)
        assert waiting.known[PLACE].since_ms == since_ms
        waiting.note({}, {}, [PLACE], now_ms)
    waiting.keep_only([])
    waiting.note(STANDING, {PLACE: 9}, [PLACE], 9_000)
    assert waiting.known[PLACE].since_ms == 9_000
