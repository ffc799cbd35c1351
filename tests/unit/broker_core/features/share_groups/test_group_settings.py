"""The values that settings of share groups may have."""

import pytest

from broker_core.errors import KafkaError
from broker_core.features.share_groups.group_settings import check

RESET, ISOLATION = "share.auto.offset.reset", "share.isolation.level"


@pytest.mark.parametrize(
    ("key", "value"),
    [(RESET, "earliest"), (RESET, "latest"), (RESET, "by_duration:PT1H"), (ISOLATION, "read_committed"), ("x", "y")],
)
def test_value_that_kafka_takes_is_taken(key: str, value: str) -> None:
    check(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [(RESET, "none"), (RESET, "by_duration:-PT1H"), (RESET, "by_duration:1h"), (ISOLATION, "dirty")]
)
def test_other_value_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises((KafkaError, ValueError), match=key.replace(".", r"\.")):
        check(key, value)
