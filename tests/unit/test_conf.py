"""The settings files in conf/ match the code."""

import re
from pathlib import Path

from broker_core.config import BrokerConfig, parse_properties
from broker_core.settings.catalog import SETTINGS

CONF = Path(__file__).parents[2] / "conf"


def test_broker_properties_list_every_key_with_its_default():
    settings = parse_properties((CONF / "broker.properties").read_text(encoding="utf-8"))
    assert settings == BrokerConfig().as_text()


def test_broker_properties_explain_every_key_as_brokers_do():
    explained: dict[str, str] = {}
    comment: list[str] = []
    for line in (CONF / "broker.properties").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            comment.append(line[2:])
            continue
        if "=" in line:
            explained[line.partition("=")[0]] = " ".join(comment)
        comment = []
    assert explained == {key: SETTINGS[key].meaning for key in BrokerConfig().as_text()}


def test_spark_defaults_are_spark_settings():
    lines = (CONF / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    assert settings
    assert [line for line in settings if not re.fullmatch(r"spark\.\S+\s+\S.*", line)] == []
