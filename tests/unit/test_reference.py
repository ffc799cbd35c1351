"""The pages of docs/reference match the code."""

import inspect
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import broker_core
import spark_eos
from broker_core.broker.monitoring.metrics import BrokerMetrics, Durations, PartitionMetrics, RequestMetrics
from broker_core.errors import ConfigError
from broker_core.errors_page import OnErrorsPage
from broker_core.features.share_groups.metrics import ShareMetrics, SharePartitionId, SharePartitionMetrics
from broker_core.server.metrics_endpoint import ROWS, families
from broker_core.types import TopicPartition
from spark_eos.errors import OptionError
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS
from spark_eos.options import catalog
from spark_eos.options.catalog import SINK_OPTIONS, SOURCE_OPTIONS, OptionDefinition
from spark_eos.options.sink import sink_options
from spark_eos.options.source import batch_options, filter_pushdown, stream_options
from tests.support.doctest_blocks import with_blocks
from tests.support.error_messages import LISTED, error_anchors
from tests.support.reference import (
    BLOCKS,
    PAGES,
    PUBLIC_ERRORS,
    ROOT,
    block_names,
    connection_settings,
    files,
    honored,
    security_settings,
)

SINK = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
SOURCE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
TOKENS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.provider": "module:function",
}
# The values of other options that these options need.
NEEDED = {
    "kafka.compression.gzip.level": {"compression.type": "gzip"},
    "kafka.compression.lz4.level": {"compression.type": "lz4"},
    "kafka.compression.zstd.level": {"compression.type": "zstd"},
    "metricsHost": {"metricsPort": "9404"},
    "commitOffsetsToGroup": {"kafka.group.id": "g"},
    "kafka.sasl.login.refresh.window.factor": TOKENS,
    "kafka.sasl.login.refresh.window.jitter": TOKENS,
}
# Options that the client reads when it connects, or that are parsed separately.
READ_LATER = {"client.dns.lookup", "ssl.truststore.type", "ssl.keystore.type", "sasl.mechanism", "security.protocol"}


def pages() -> Mapping[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md"))}


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_generated_parts_are_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path](), "run: python -m tests.support.reference"


def test_each_generated_part_is_on_a_page() -> None:
    assert {name for page in pages().values() for name in block_names(page)} == set(BLOCKS)


@pytest.mark.parametrize("name", PUBLIC_ERRORS)
def test_each_error_class_has_a_section(name: str) -> None:
    assert f"\n## {name}\n" in pages()["errors.md"]


def test_each_message_names_the_anchor_of_its_entry() -> None:
    """Fill each gap of each message, and look at the address that Python prints below it."""
    page, wrong = pages()["errors.md"], []
    for each, anchor in error_anchors().items():
        error: OnErrorsPage = ConfigError(each.happened.replace("…", "x7"))
        if each.family != "ConfigError":
            kind = LISTED[each.family]
            error = kind(each.happened.replace("…", "x7"), checked=each.checked, remedy=each.remedy)
        assert f'<a id="{anchor}"' in page
        printed = traceback.format_exception_only(error)
        if printed[-1] != f"See docs/reference/errors.md#{anchor}\n":
            wrong.append((each, printed))
    assert not wrong


@pytest.mark.parametrize("package", [broker_core, spark_eos])
def test_each_public_name_is_on_the_api_page(package: object) -> None:
    name = package.__name__
    documented = set(re.findall(rf"^::: {name}\.(\w+)$", pages()["api.md"], re.MULTILINE))
    assert documented == set(package.__all__) - {"__version__"}


@pytest.mark.parametrize("package", [broker_core, spark_eos])
def test_each_public_member_has_a_docstring(package: object) -> None:
    def is_described(value: object) -> bool:
        return inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, property)

    without = []
    for name in sorted(set(package.__all__) - {"__version__"}):
        member = getattr(package, name)
        parts = {name: member}
        for base in inspect.getmro(member) if inspect.isclass(member) else ():
            if base.__module__.partition(".")[0] in {"broker_core", "spark_eos"}:
                parts |= {f"{name}.{each}": value for each, value in vars(base).items() if not each.startswith("_")}
        without += [each for each, value in parts.items() if is_described(value) and not inspect.getdoc(value)]
    assert not without


def test_docstring_examples_become_code_blocks() -> None:
    text = "Add numbers:\n\n>>> 1 + (  # doctest: +SKIP\n...     1)\n2\n\nMore."
    assert with_blocks(text) == "Add numbers:\n\n```pycon\n>>> 1 + (\n...     1)\n2\n```\n\nMore."


# Options


def parsed(option: OptionDefinition, values: Mapping[str, str], *, of_source: bool) -> object:
    if not of_source:
        return sink_options(SINK | values)
    if option.name == "filterPushdown":
        return filter_pushdown(SOURCE | values)
    return (batch_options if option.name.startswith("ending") else stream_options)(SOURCE | values)


def cases(*described: str) -> list[pytest.ParameterSet]:
    """List the options with a value in one of these fields."""

    def settings(*groups: Iterable[OptionDefinition]) -> list[OptionDefinition]:
        return [each._replace(name=f"kafka.{each.name}") for group in groups for each in group]

    found = [(each, False) for each in SINK_OPTIONS] + [(each, True) for each in SOURCE_OPTIONS]
    found += [(each, False) for each in settings(honored(catalog.PRODUCER), connection_settings())]
    found += [(each, True) for each in settings(honored(catalog.CONSUMER), security_settings())]
    return [
        pytest.param(each, of_source, id=f"{'source' if of_source else 'sink'}-{each.name}")
        for each, of_source in found
        if each.name.removeprefix("kafka.") not in READ_LATER
        and any(getattr(each, name) not in ("", (), None) for name in described)
    ]


@pytest.mark.parametrize(("option", "of_source"), cases("default"))
def test_documented_default_is_in_effect(option: OptionDefinition, of_source: bool) -> None:
    needed = NEEDED.get(option.name, {})
    given = parsed(option, {**needed, option.name: option.default}, of_source=of_source)
    assert given == parsed(option, needed, of_source=of_source)


@pytest.mark.parametrize(("option", "of_source"), cases("choices", "minimum"))
def test_documented_values_match_allowed_ones(option: OptionDefinition, of_source: bool) -> None:
    needed = NEEDED.get(option.name, {})
    allowed = [*option.choices, *(str(bound) for bound in (option.minimum, option.maximum) if bound is not None)]
    refused = ["neither"] if option.choices else []
    refused += [str(option.minimum - 1)] if option.minimum is not None else []
    refused += [str(option.maximum + 1)] if option.maximum is not None else []
    for text in allowed:
        parsed(option, {**needed, option.name: text}, of_source=of_source)
    for text in refused:
        with pytest.raises(OptionError):
            parsed(option, {**needed, option.name: text}, of_source=of_source)


# Metrics


def test_each_metric_of_a_query_is_defined() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spark_eos").rglob("*.py"))
    used = {"sink": set(), "source": set(re.findall(r'_set_for_partitions\(\s*"(\w+)"', code))}
    for side, name in re.findall(r'(SINK|SOURCE)_METRICS\.(?:add|set)\("(\w+)"', code):
        used[side.lower()].add(name)
    used["sink"] |= set(re.findall(r'await (?:asks\.)?(?:Count|Gauge)\("(\w+)"', code))
    steps = re.findall(r'async with (?:asks\.)?Step\("([\w ]+)"', code)
    used["sink"] |= {f"{step.replace(' ', '_')}_ms" for step in steps}
    assert used == {"sink": set(SINK_METRICS.definitions), "source": set(SOURCE_METRICS.definitions)}


def test_broker_metrics_have_the_documented_labels_and_attributes() -> None:
    nothing = Durations()
    metrics = BrokerMetrics(
        producer_ids=frozenset(),
        producer_id_count=0,
        transactional_ids={"Empty": 1},
        partitions={TopicPartition("t", 0): PartitionMetrics()},
        unknown_destination_queue_size=0,
        log_append_retry_queue_size=0,
        verification_time_ms=nothing,
        verification_failures=0,
        transaction_load_time_ms=nothing,
        group_load_time_ms=nothing,
        share_load_time_ms=nothing,
        by_api={"Produce": RequestMetrics({9: 1}, {"NOT_LEADER_OR_FOLLOWER": 1}, nothing)},
        of_features={
            "shares": ShareMetrics(
                {"Stable": 1},
                {SharePartitionId("g", "t", 0): SharePartitionMetrics()},
                {"Accept": 1},
                {SharePartitionId("g", "t", 0): 1},
            )
        },
    )
    for row, family in zip(ROWS, families(metrics), strict=True):
        assert {tuple(name for name in sample.labels if name != "quantile") for sample in family.samples} == {
            row.labels
        }
        names = {"metrics": metrics, "partition": ("t", 0), "api": "Produce"}
        eval(f"metrics.{row.attribute}", names)
