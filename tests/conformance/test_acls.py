"""With each right a client is answered as by Apache Kafka, and without it too."""

import pytest

from tests.support.acl_cases import CASES, Case, type_of
from tests.support.guarded_kafka import Stage
from tests.support.waiting import wait_until


def settles_at(stage: Stage, case: Case, answer: object) -> None:
    """Ask until the answer is there: what was granted is known to a controller and a broker one after the other."""
    seen: list[object] = []

    def answered() -> bool:
        seen[:] = [case.ask(stage)]
        return seen == [answer]

    try:
        wait_until(answered, "the answer", deadline_s=10)
    except AssertionError:
        assert seen == [answer]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_right_brings_a_client_one_step_further(stage: Stage, case: Case) -> None:
    assert case.ask(stage) == case.answers[0]
    for (operation, place), answer in zip(case.rights, case.answers[1:], strict=True):
        stage.grant(operation, type_of(place), getattr(stage, place))
        settles_at(stage, case, answer)
