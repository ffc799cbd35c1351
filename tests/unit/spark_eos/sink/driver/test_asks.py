"""Each ask of the protocol names a method of the cluster, and each case of its tables has a row."""

import inspect
from dataclasses import fields
from itertools import product

import pytest

from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.performing import perform
from spark_eos.sink.protocol import asks
from spark_eos.sink.protocol.ownership import AFTER_FENCING, COURSES, Holding
from tests.support.spark_eos.driving import Nowhere
from tests.support.spark_eos.sink_cluster import MemoryCluster


def kafka_asks() -> list[type[asks.KafkaAsk[object]]]:
    found = [each for each in vars(asks).values() if isinstance(each, type) and issubclass(each, asks.KafkaAsk)]
    return [each for each in found if each is not asks.KafkaAsk]


@pytest.mark.parametrize("cluster", [KafkaCluster, MemoryCluster])
@pytest.mark.parametrize("ask", kafka_asks(), ids=lambda each: each.__name__)
def test_fields_of_an_ask_are_the_parameters_of_its_method(ask: type[asks.KafkaAsk[object]], cluster: type) -> None:
    parameters = list(inspect.signature(getattr(cluster, ask.method)).parameters)[1:]
    assert [each.name for each in fields(ask)] == parameters  # type: ignore[arg-type]


def test_limits_that_are_not_given_are_left_to_the_cluster() -> None:
    assert asks.DescribeTransactions(("a",)).arguments() == ([("a",)], {})
    assert asks.DescribeTransactions(("a",), wait_ms=5).arguments() == ([("a",)], {"wait_ms": 5})
    assert asks.ForgetCoordinators((), "g").arguments() == ([(), "g"], {})


def test_error_of_a_performer_is_raised_where_the_ask_was_awaited() -> None:
    async def protocol() -> str:
        try:
            await asks.InitProducerId("id", 1)
        except AttributeError as error:
            await asks.Sleep(0)
            return error.name or ""
        return ""

    assert perform(Nowhere(), protocol()) == "init_producer_id"


def test_tables_of_ownership_have_a_row_for_each_case() -> None:
    assert set(COURSES) == set(product(Holding, (False, True)))
    assert set(AFTER_FENCING) == set(product((False, True), repeat=3))
    assert all(rule.reason for rule in COURSES.values())
