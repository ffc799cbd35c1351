"""The generated parts of docs/reference: tables of options, commands, metrics, errors and settings, from the code.

`python -m tests.support.reference` rewrites what stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`
in the pages; `tests/unit/test_reference.py` checks that the pages are current.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import broker_core.__main__ as broker_command
from broker_core.config import BrokerConfig, TopicConfig
from broker_core.embedded import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.features.control.documentation import fields_of
from broker_core.features.control.server import control_app
from broker_core.server.metrics_endpoint import ROWS
from broker_core.settings.catalog import SETTINGS
from broker_core.settings.served import ListenerConfig
from spark_eos import errors
from spark_eos.admin import command
from spark_eos.admin.output import EXIT_MEANINGS
from spark_eos.client.error_table import TABLE, Api, failure
from spark_eos.client.needed_apis import SINK_APIS, SOURCE_APIS, NeededApi
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS, ProcessMetrics
from spark_eos.options import catalog
from spark_eos.options.catalog import OptionDefinition, Setting, Treatment
from spark_eos.source.data_loss import DataLoss
from tests.support.error_messages import ANCHORS, PACKAGES, ErrorMessage, anchor_tables, error_anchors, error_messages
from tests.support.setting_stub import STUB, setting_stub

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ROOT / "docs" / "reference"
LONGEST_CELL: Final = 200

_BLOCK: Final = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[^>]+?) -->\n).*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL
)
_DEFAULT_IN_HELP: Final = re.compile(r" \((?:(%\(default\)s)|default: (%\(default\)s|[^()]*))\)$")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    for cell in (cell for row in lines for cell in row):
        assert len(cell) <= LONGEST_CELL, f"{len(cell)} characters in a table cell: {cell}"
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in lines)


def json_rows(value: Any, indent: str = "") -> str:
    """Write JSON with each object that has no other in it on a line of its own, as a row of a table."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or "{" not in line[1:]:
        return line
    more = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {json_rows(each, more)}" for name, each in value.items()]
    else:
        parts = [json_rows(each, more) for each in value]
    return line[0] + ",".join(f"\n{more}{part}" for part in parts) + f"\n{indent}{line[-1]}"


def code(text: str) -> str:
    """Format text as code; an empty one stays empty."""
    if not text:
        return ""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


# Options

_SECURITY: Final = ("https.", "sasl.", "security.", "ssl.")


def options(shown: Iterable[OptionDefinition], prefix: str = "") -> str:
    """Write a table of options."""
    return table(
        ("Option", "Meaning", "Default", "Values"),
        ((code(prefix + each.name), each.meaning, default_of(each), values_of(each)) for each in shown),
    )


def honored(*sides: str) -> list[OptionDefinition]:
    """Return the settings of Kafka's clients with an effect on these sides only."""
    return [each for name, each in catalog.HONORED.items() if catalog.SETTINGS[name].sides == {*sides}]


def security_settings() -> list[OptionDefinition]:
    """Return the settings of all sides for TLS and SASL."""
    return [each for each in _of_all() if each.name.startswith(_SECURITY)]


def connection_settings() -> list[OptionDefinition]:
    """Return the other settings of all sides."""
    return [each for each in _of_all() if not each.name.startswith(_SECURITY)]


def _of_all() -> list[OptionDefinition]:
    return honored(catalog.PRODUCER, catalog.CONSUMER, catalog.ADMIN)


def default_of(option: OptionDefinition) -> str:
    """Describe the default of an option."""
    return option.default_note or code(option.default)


def values_of(option: OptionDefinition) -> str:
    """Describe the allowed values of an option, with their unit."""
    if option.choices:
        return ", ".join(map(code, option.choices))
    bounds = option.values
    if option.minimum is not None:
        most = f" to `{option.maximum}`" if option.maximum is not None else " or more"
        bounds = f"`{option.minimum}`{most}"
    return ", ".join(filter(None, (option.unit, bounds)))


_LETTERS: Final = {"producer": "P", "consumer": "C", "admin client": "A"}
_SIDES: Final = {"producer": "sink", "consumer": "source", "admin client": "`eos-kafka`"}


def _by_name(row: Setting) -> str:
    return row.name


def _kafka_settings() -> str:
    """List every setting of Apache Kafka's clients."""
    rows = sorted((each for each in catalog.SETTINGS.values() if each.clients), key=_by_name)
    return table(
        ("Setting", "Of", "Verdict", "What it does, or why"),
        ((code(f"kafka.{row.name}"), _clients(row), _verdict(row), _sentence(row.text)) for row in rows),
    )


def _other_settings() -> str:
    """List the settings that Apache Kafka's clients do not have."""
    rows = sorted((each for each in catalog.SETTINGS.values() if not each.clients), key=_by_name)
    return table(
        ("Setting", "Verdict", "What it does, or why"),
        ((code(f"kafka.{row.name}"), _verdict(row), _sentence(row.text)) for row in rows),
    )


def _clients(row: Setting) -> str:
    return " ".join(letter for client, letter in _LETTERS.items() if client in row.clients)


def _verdict(row: Setting) -> str:
    if row.treatment is Treatment.MAPPED:
        return f"{row.treatment} to {code(f'kafka.{row.target}')}"
    if row.allowed:
        plain = [each for each in sorted(row.allowed) if "." not in each or each.startswith("tls")]
        allowed = ", ".join(code(each) or "empty" for each in plain) or "classes that are known"
        return f"{row.treatment}, except {allowed}"
    only = len(row.sides) < len(_SIDES) and row.sides != row.clients
    return row.treatment + (f" by the {_SIDES[next(iter(row.sides))]}" if only else "")


def _platform_options() -> str:
    return table(
        ("Option", "Platform", "What it is", "What to do"),
        (
            (code(each.name), each.platform, _sentence(each.meaning), _sentence(each.remedy))
            for each in catalog.PLATFORM_OPTIONS.values()
        ),
    )


def _needed_apis(apis: Iterable[NeededApi]) -> str:
    return table(
        ("API", "Kafka", "Use", "Without it"),
        (
            (
                f"{api.name} {api.version}",
                api.kafka,
                _sentence(api.use),
                _sentence(api.without) or "The query stops.",
            )
            for api in apis
        ),
    )


# Commands


def commands(parser: argparse.ArgumentParser, level: int = 2) -> str:
    """Write a section for every command of a parser."""
    return "\n\n".join(_command_sections(parser, level))


def _command_sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    for name, help_text, below in _subcommands(parser):
        nested = list(_subcommands(below))
        yield f"{'#' * level} {below.prog}"
        if nested:
            yield _sentence(help_text)
            yield table(("Command", "What it does"), ((code(each), _sentence(text)) for each, text, _ in nested))
            yield from _command_sections(below, level + 1)
        else:
            yield command_body(below)
        assert name in below.prog


def command_body(parser: argparse.ArgumentParser) -> str:
    """Describe one command: what it does, its usage, its options, its exit codes."""
    parts = [parser.description or "", f"```text\n{usage(parser)}\n```", argument_table(parser)]
    if parser.epilog:
        parts.append(parser.epilog)
    return "\n\n".join(filter(None, parts))


def usage(parser: argparse.ArgumentParser) -> str:
    """Write the shortest call: the required arguments."""
    words = [parser.prog]
    for action in _arguments(parser):
        if not action.option_strings:
            words.append(str(action.metavar or action.dest))
        elif _is_required(action):
            words.append(f"{action.option_strings[0]} {_metavar(action)}")
    return " ".join([*words, "[OPTIONS]"])


def argument_table(parser: argparse.ArgumentParser) -> str:
    """Write a table of the arguments of one command."""
    rows = []
    for action in _arguments(parser):
        text, default = _help(action)
        names = ", ".join(code(f"{name} {_metavar(action)}".strip()) for name in action.option_strings)
        rows.append((names or code(str(action.metavar)), _sentence(text), default))
    return table(("Argument", "Meaning", "Default"), rows)


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction, argparse._VersionAction)
    shown = (action for action in parser._actions if not isinstance(action, hidden))
    return [action for action in shown if action.help != argparse.SUPPRESS]


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield choice.dest, choice.help or "", action.choices[choice.dest]


def _is_required(action: argparse.Action) -> bool:
    # An option that may stand before or after the subcommand is required by the command, not by argparse.
    return action.required or (action.help or "").endswith("; required")


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _help(action: argparse.Action) -> tuple[str, str]:
    """Return the help without its default, and the default."""
    text = (action.help or "").removesuffix("; required")
    if _is_required(action):
        return text, "required"
    found = _DEFAULT_IN_HELP.search(text)
    if found is None:
        return text, ""
    shown = found[2] or found[1]
    return text[: found.start()], code(str(action.default) if shown == "%(default)s" else shown)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}." if text else ""


def _exit_codes() -> str:
    return table(
        ("Exit code", "Meaning"), ((code(str(each.value)), _sentence(text)) for each, text in EXIT_MEANINGS.items())
    )


# Metrics


def spark_metrics(metrics: ProcessMetrics) -> str:
    """Write a table of the metrics of one side of a query."""
    rows = []
    for each in metrics.definitions.values():
        kind = "counter" if each.is_counter else "gauge"
        name = _metric_name(f"{metrics.prefix}_{each.name}", kind, (*metrics.labels, *each.labels))
        rows.append((name, _sentence(each.meaning), kind))
    return table(("Metric", "Meaning", "Type"), rows)


def _metric_name(name: str, kind: str, labels: Sequence[str]) -> str:
    return code(name + ("_total" if kind == "counter" else "") + (f"{{{','.join(labels)}}}" if labels else ""))


def _broker_metrics() -> str:
    return table(
        ("Metric", "Meaning", "Type", "Attribute"),
        (
            (_metric_name(row.name, row.kind, row.labels), _sentence(row.meaning), row.kind, code(row.attribute))
            for row in ROWS
        ),
    )


# Errors


def messages(family: str) -> str:
    """List the messages of one class of errors, with what was checked and what to do."""
    of_family = {each for each in error_messages() if each.family == family}
    found = sorted(of_family, key=lambda each: (each.happened.lower(), each))
    return "\n".join(_message(each) for each in found)


def _message(each: ErrorMessage) -> str:
    anchor = error_anchors()[each]
    parts = [f'- <a id="{anchor}" href="#{anchor}">{code(each.happened)}</a>']
    if each.checked:
        parts.append(f"  Checked: {_prose(each.checked)}")
    if each.remedy:
        parts.append(f"  What to do: {_prose(each.remedy)}")
    return "<br>\n".join(parts)


def _prose(text: str) -> str:
    """Escape what Markdown would take for HTML or emphasis outside of code."""
    pieces = text.split("`")
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"([<>*_\[\]])", r"\\\1", pieces[index])
    joined = "`".join(pieces)
    return joined if joined.endswith((".", "…", ";")) else f"{joined}."


def _kafka_codes() -> str:
    """Describe the error codes for which the client has a text of its own, by API where it differs."""
    rows = []
    for error in ErrorCode:
        by_text: dict[tuple[str, str], list[Api]] = {}
        for api in Api:
            refused = failure(api, error, "it")
            _, _, meaning = refused.happened.partition("refused: ")
            if meaning:
                by_text.setdefault((meaning, refused.remedy), []).append(api)
        most = max((len(apis) for apis in by_text.values()), default=0)
        for (meaning, remedy), apis in by_text.items():
            only = "" if len(apis) == most else f" ({', '.join(api.value for api in apis)})"
            known = [api for api in apis if error in TABLE[api]] or apis
            classes = dict.fromkeys(type(failure(api, error, "it")).__name__ for api in known)
            rows.append((code(error.name) + only, _sentence(meaning), _sentence(remedy), ", ".join(map(code, classes))))
    return table(("Error code", "Cause", "What to do", "Class"), rows)


def _data_losses() -> str:
    return table(
        ("Code", "What happened"), ((code(f"KAFKA_DATA_LOSS.{each.name}"), _sentence(each.value)) for each in DataLoss)
    )


# The control port


def control_api() -> str:
    """Write a table of the addresses of each section of the control port's API."""
    description = control_app(EmbeddedBroker()).openapi()
    sections: dict[str, list[Sequence[str]]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            fields = ", ".join(
                code(name) if is_needed else f"[{code(name)}]"
                for name, _, is_needed in fields_of(description["components"]["schemas"], operation)
            )
            row = (code(f"{method.upper()} {path}"), fields, operation["description"], code(operation["x-python"]))
            sections.setdefault(operation["tags"][0], []).append(row)
    return "\n\n".join(
        f"### {name[0].upper()}{name[1:]}\n\n" + table(("Address", "Fields", "What it does", "In Python"), rows)
        for name, rows in sections.items()
    )


# Settings of the broker


def settings(fields: Mapping[str, Any]) -> str:
    """Write a table of broker settings."""
    return table(
        ("Setting", "Meaning", "Default", "Values"),
        ((code(key), SETTINGS[key].meaning, _shown(spec.default), bounds(key)) for key, spec in fields.items()),
    )


def _shown(default: object) -> str:
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return code(text) or "empty"


def bounds(key: str) -> str:
    """Describe the allowed values of a setting."""
    declared = SETTINGS[key]
    if declared.type == "BOOLEAN":
        return "`true`, `false`"
    if declared.choices:
        return ", ".join(code(choice) if choice else "empty" for choice in declared.choices)
    if declared.type not in ("INT", "LONG", "DOUBLE"):
        return "text, secret" if declared.type == "PASSWORD" else "text"
    if declared.low is None:
        return "a number"
    return f"`{declared.low}` or more" if declared.high is None else f"`{declared.low}` to `{declared.high}`"


def _topic_settings() -> str:
    rows, of_broker = [], BrokerConfig.keys()
    for key, spec in TopicConfig.keys().items():
        declared = SETTINGS[key]
        name = declared.default_of if declared.default_of in of_broker else None
        meaning = declared.meaning or SETTINGS[name or key].meaning
        rows.append((code(key), meaning, _shown(spec.default), bounds(key), code(name) if name else ""))
    return table(("Setting", "Meaning", "Default", "Values", "Broker setting with the default"), rows)


def _broker_settings(*prefixes: str) -> str:
    listener = ListenerConfig.keys()
    own = {key: spec for key, spec in BrokerConfig.keys().items() if key not in listener}
    if prefixes:
        chosen = {key: spec for key, spec in own.items() if key.startswith(prefixes)}
    else:
        chosen = {key: spec for key, spec in own.items() if not key.startswith(_GROUPED)}
    return settings(chosen)


_TRANSACTIONS: Final = ("transaction", "producer.id.", "add.partitions.")
_GROUPS: Final = ("offset", "group.", "share.")
_LOGS: Final = ("log.", "message.max.bytes", "compression.", "max.decompressed.", "min.insync.", "unclean.")
_CONNECTIONS: Final = (
    "listeners", "advertised.", "listener.", "inter.broker.", "max.connections", "connection", "socket.",
)  # fmt: skip
_QUOTAS: Final = ("quota.", "controller.quota.")
_ACCESS: Final = ("authorizer.", "super.users", "allow.everyone", "delegation.token.")
_GROUPED: Final = (*_TRANSACTIONS, *_GROUPS, *_LOGS, *_CONNECTIONS, *_QUOTAS, *_ACCESS)

PUBLIC_ERRORS: Final = [
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.EosKafkaError)
]

BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "sink options": lambda: options(catalog.SINK_OPTIONS),
    "sink settings": lambda: options(honored(catalog.PRODUCER), "kafka."),
    "source options": lambda: options(catalog.SOURCE_OPTIONS),
    "source settings": lambda: options(honored(catalog.CONSUMER), "kafka."),
    "connection settings": lambda: options(connection_settings(), "kafka."),
    "security settings": lambda: options(security_settings(), "kafka."),
    "kafka settings": _kafka_settings,
    "settings of others": _other_settings,
    "platform options": _platform_options,
    "APIs of the sink": lambda: _needed_apis(SINK_APIS),
    "APIs of the source": lambda: _needed_apis(SOURCE_APIS),
    "eos-kafka": lambda: commands(command._parser()),
    "exit codes": _exit_codes,
    "broker_core command": lambda: command_body(broker_command._parser()),
    "control API": control_api,
    "sink metrics": lambda: spark_metrics(SINK_METRICS),
    "source metrics": lambda: spark_metrics(SOURCE_METRICS),
    "broker metrics": _broker_metrics,
    **{f"messages of {name}": lambda name=name: messages(name) for name in PUBLIC_ERRORS},
    "messages of ConfigError": lambda: messages("ConfigError"),
    "messages of RefusedError": lambda: messages("RefusedError"),
    "error codes": _kafka_codes,
    "data losses": _data_losses,
    "broker settings": _broker_settings,
    "log settings": lambda: _broker_settings(*_LOGS),
    "transaction settings": lambda: _broker_settings(*_TRANSACTIONS),
    "group settings": lambda: _broker_settings(*_GROUPS),
    "connection settings of the broker": lambda: _broker_settings(*_CONNECTIONS),
    "quota settings": lambda: _broker_settings(*_QUOTAS),
    "access settings": lambda: _broker_settings(*_ACCESS),
    "listener settings": lambda: settings(ListenerConfig.keys()),
    "topic settings": _topic_settings,
}


def rewritten(page: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """Return a page with its generated parts rewritten."""
    return _BLOCK.sub(lambda found: f"{found['begin']}\n{blocks[found['name']]()}\n\n{found['end']}", page)


def block_names(page: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [found["name"] for found in _BLOCK.finditer(page)]


def files() -> Mapping[Path, Callable[[], str]]:
    """Map each generated file to what writes its text: the pages, the tables of anchors, and the stub of settings."""
    return {
        **{path: lambda path=path: rewritten(path.read_text(encoding="utf-8")) for path in sorted(PAGES.glob("*.md"))},
        **{ROOT / package / ANCHORS: lambda package=package: anchor_tables()[package] for package in PACKAGES},
        ROOT / STUB: setting_stub,
    }


def main() -> None:
    """Rewrite the generated files."""
    for path, write in files().items():
        after = write()
        if not path.exists() or after != path.read_text(encoding="utf-8"):
            path.write_text(after, encoding="utf-8")
            print(f"rewritten: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
