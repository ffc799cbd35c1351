"""The responses of each API with each right and without it, compared with Apache Kafka's."""

import pytest

from tests.support.acl_cases import CASES, Case, type_of
from tests.support.guarded_kafka import Stage
from tests.support.share_acl_cases import SHARE_CASES
from tests.support.waiting import wait_until


def settles_at(stage: Stage, case: Case, answer: object) -> None:
    """Repeat a request until it has the expected response: the controller learns of a grant before the broker."""
    seen: list[object] = []

    def answered() -> bool:
        seen[:] = [case.ask(stage)]
        return seen == [answer]

    try:
        wait_until(answered, "the answer", deadline_s=10)
    except AssertionError:
        assert seen == [answer]


# Rules A.4/1, A.4/2, A.5/1, A.5/3, A.6 request/1, A.6 request/2, A.6 request/3, A.6 request/6, A.7/1, A.7/2,
# A.8 request/1, A.13 receiver/1, C.1/1, C.1/3, C.1/4, D.3 errors/1, E.1/1, E.1/2, E.1/3, F.1/2, F.2/1, F.2/5, F.3/5,
# G.1/1, G.1/2, G.1/3, G.1/4, G.1/5, G.1/6, G.1/7, G.1/8, G.1/9, G.1/10, G.1/11, G.1/12, G.1/13, G.1/14, G.1/15, G.1/18,
# G.1/19, G.1/20 and J.4/3.
@pytest.mark.parametrize("case", CASES + SHARE_CASES, ids=[case.name for case in CASES + SHARE_CASES])
def test_each_right_allows_one_more_step(stage: Stage, case: Case) -> None:
    assert case.ask(stage) == case.answers[0]
    for (operation, place), answer in zip(case.rights, case.answers[1:], strict=True):
        stage.grant(operation, type_of(place), getattr(stage, place))
        settles_at(stage, case, answer)
