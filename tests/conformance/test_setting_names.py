"""The committed list of client settings is that of Apache Kafka's jar."""

import pytest

from tests.support.kafka_setting_names import committed_names, names_in_jar


@pytest.mark.usefixtures("apache_asked_for")
def test_list_of_settings_matches_the_jar() -> None:
    names = names_in_jar()
    assert committed_names() == names, "run: python -m tests.support.kafka_setting_names"
