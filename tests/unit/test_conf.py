"""The settings files in conf/ match the code."""

import itertools
import re
from pathlib import Path

from broker_core.config import BrokerConfig, parse_properties

CONF = Path(__file__).parents[2] / "conf"


def test_broker_properties_list_every_key_with_its_default():
    settings = parse_properties((CONF / "broker.properties").read_text(encoding="utf-8"))
    assert settings == BrokerConfig().as_text()


def test_broker_properties_explain_every_key_in_one_line():
    lines = (CONF / "broker.properties").read_text(encoding="utf-8").splitlines()
    unexplained = [
        line
        for above, line in itertools.pairwise(lines)
        if "=" in line and not line.startswith("#") and not above.startswith("# ")
    ]
    assert unexplained == []


def test_spark_defaults_are_spark_settings():
    lines = (CONF / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    assert settings
    assert [line for line in settings if not re.fullmatch(r"spark\.\S+\s+\S.*", line)] == []
