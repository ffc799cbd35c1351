"""What the parsers of all commands share, and the cluster that a command works on.

Errors name the nearest option. One rule holds for changes. `--bootstrap-server`, `--command-config`, `--profile` and
`--timeout-seconds` are accepted by every command, before and after its name. The file of `--command-config` is a
properties file in the format of Kafka's own tools. A profile is such a file with `bootstrap.servers` in it: `--profile
test` reads `~/.config/eos-kafka/test.properties`.

What the command line names counts before the environment. A file of the environment that names its cluster is used for
that cluster only: its credentials do not reach another address.
"""

import argparse
import difflib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from broker_core.properties import read_properties
from broker_core.types import LONGEST_STRING_BYTES, counted
from spark_eos.admin.output import ExitCode, exit_codes, say
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT
from spark_eos.errors import OptionError
from spark_eos.options.catalog import ADMIN
from spark_eos.options.client import PREFIX, ClientOptions, client_options
from spark_eos.options.sink import DEFAULT_DECISION_TOPIC, DEFAULT_PREFIX

SERVER_VARIABLE: Final = "EOS_KAFKA_BOOTSTRAP_SERVER"
CONFIG_VARIABLE: Final = "EOS_KAFKA_COMMAND_CONFIG"
PROFILE_VARIABLE: Final = "EOS_KAFKA_PROFILE"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_CHOICES: Final = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<choices>.*)\)")

# Options of other commands, and what a command has for them.
_INSTEAD: Final[Mapping[tuple[str, str], str]] = {("eos-kafka watch", "--once"): "--count 1"}


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors have the usage of the command at hand, and the nearest name for a mistyped one."""

    _given: Sequence[str] = ()
    # The values so far of the line at hand, for options that take one; the parsers of its commands share them.
    kept: ClassVar[dict[str, object]] = {}

    def __init__(self, *args: Any, **settings: Any) -> None:
        # An abbreviation of --yes would carry out a change, and one that is clear today may mean two options tomorrow.
        super().__init__(*args, **settings | {"allow_abbrev": False})

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse a line; only the outermost parser is called so."""
        self.kept.clear()
        return super().parse_args(args, namespace)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as every parser does, but refuse at once what this command does not know.

        Otherwise the outermost parser refuses it, with the usage of `eos-kafka`.
        """
        self._given = list(sys.argv[1:] if args is None else args)
        chosen, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return chosen, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message with what was meant, and exit with 2."""
        wrong = _CHOICES.search(message)
        # The value of a mistyped option stands where a command is expected, and a mistyped option may be required.
        before = takewhile(lambda each: wrong is None or each != wrong["given"], self._given)
        found = self._meant(before)
        said = message if len(found) == 1 else ""
        meant = ", ".join(
            near if name in said or name in near else f"{near} for {name}" for name, near in found.items()
        )
        if not meant and wrong is not None:
            meant = _nearest(wrong["given"], re.findall(r"[\w-]+", wrong["choices"]))
        super().error(f"{message}; did you mean {meant}?" if meant else message)

    def _meant(self, words: Iterable[str]) -> dict[str, str]:
        """Map the options among some words that this command does not have to what it has for them."""
        known = self._option_string_actions
        shown = {name.lstrip("-"): name for name, action in known.items() if action.help != argparse.SUPPRESS}
        commands = [each for each in self._actions if isinstance(each, argparse._SubParsersAction)]
        parsers = [parser for each in commands for parser in each.choices.values()]
        of_commands = {name for each in parsers for name in each._option_string_actions}
        names = dict.fromkeys(each.partition("=")[0] for each in words if each.startswith("--"))
        found = {}
        for name in (name for name in names if name not in known):
            if meant := _INSTEAD.get((self.prog, name)) or shown.get(_nearest(name.lstrip("-"), shown)):
                found[name] = meant
            elif name in of_commands:
                found[name] = f"{name} after the name of a command"
        return found


class _OnlyOnce(argparse.Action):
    """Keep a value, and refuse another one for the same option: the command would work on the last one alone."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, CommandParser)
        earlier = parser.kept.setdefault(self.dest, values)
        if earlier != values:
            raise argparse.ArgumentError(self, f"is given twice, as {earlier!r} and as {values!r}; give it once")
        setattr(namespace, self.dest, values)


def _nearest(given: str, names: Iterable[str]) -> str:
    return "".join(difflib.get_close_matches(given, list(names), n=1))


def _bounded(parse: Callable[[str], float], least: float, most: float, what: str) -> Callable[[str], float]:
    """Parse a number within bounds; the error of another text says what it is not."""

    def read(text: str) -> float:
        try:
            number = parse(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return number

    return read


def _digits(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _given(text: str) -> str:
    """Refuse an empty value, which a script gives by a variable that is not set: a default would stand for it."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is empty; if it comes from a variable, set the variable")
    return text


def _name(text: str) -> str:
    return _string(_given(text))


def _string(text: str) -> str:
    """Parse a value that Kafka sends as a string; for any other the library would fail, or retry forever."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not text in UTF-8") from None
    if size > LONGEST_STRING_BYTES:
        raise argparse.ArgumentTypeError(f"{size} bytes are more than the {LONGEST_STRING_BYTES} of a string in Kafka")
    return text


def _of_bits(bits: int) -> Callable[[str], int]:
    """Parse a number that Kafka sends in so many bits; for a larger one the library would fail, or wait forever."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise argparse.ArgumentTypeError(f"{text} is more than the {bits} bits that Kafka has for it")
        return number

    return read


# Options.

# In milliseconds 31 bits, which is what a system waits for.
_LONGEST_SECONDS: Final = 2_147_483
_TYPES: Final[Mapping[str, Callable[[str], object]]] = {
    "int": int,
    "int16": _of_bits(16),
    "int32": _of_bits(32),
    "int64": _of_bits(64),
    "positive": _bounded(_digits, 1, math.inf, "a whole number of at least 1"),
    "seconds": _bounded(float, 0, _LONGEST_SECONDS, f"a number of seconds from 0 to {_LONGEST_SECONDS}"),
    "interval": _bounded(float, 0.1, _LONGEST_SECONDS, f"a number of seconds from 0.1 to {_LONGEST_SECONDS}"),
    "port": _bounded(int, 0, 65_535, "a port"),
    "rate": _bounded(float, 1, 10_000, "a number of requests from 1 to 10000"),
    "string": _string,
    "text": _given,
    "path": lambda text: Path(_given(text)),
}
# Defaults that `command_line.json` names.
_DEFAULTS: Final = {
    "the sink's decision topic": DEFAULT_DECISION_TOPIC,
    "the sink's prefix": DEFAULT_PREFIX,
    "the client's": DEFAULT_MAX_IN_FLIGHT,
}
_VARIABLES: Final = {"server": SERVER_VARIABLE, "config": CONFIG_VARIABLE, "profile": PROFILE_VARIABLE}
_DECLARED: Final = json.loads(files("spark_eos.admin").joinpath("command_line.json").read_text("utf-8"))


def add_command(commands: Commands, name: str, **defaults: object) -> argparse.ArgumentParser:
    """Add a command of `command_line.json`: its help, its exit codes, its options, and the options of the cluster."""
    area, _, own_name = name.rpartition(" ")
    declared = _DECLARED["commands"].get(area, {}).get("shared", {}) | _DECLARED["commands"][name]
    text, codes = declared["help"], [ExitCode[each] for each in declared.get("codes", ())]
    parser = commands.add_parser(
        own_name,
        aliases=declared.get("aliases", ()),
        help=text,
        description=declared.get("description") or f"{text[0].upper()}{text[1:]}. {declared.get('more', '')}".rstrip(),
        epilog=exit_codes(*codes) if codes else None,
    )
    add_cluster_options(parser)
    add_options(parser, *declared.get("options", ()))
    if "output" in declared:
        # Also before the name of a subcommand, so the parser of `eos-kafka` has the defaults.
        group = parser.add_argument_group("output", argument_default=argparse.SUPPRESS)
        add_options(group, declared["output"], "color")
    parser.set_defaults(**defaults)
    return parser


def add_options(parser: argparse._ActionsContainer, *groups: str) -> None:
    """Add groups of options of `command_line.json`; one without a help is hidden."""
    for group in groups:
        for names, settings in _DECLARED["options"][group].items():
            # argparse hides an option by the identity of this text, so it cannot come from the file.
            shown = settings["help"].format(**_VARIABLES) if "help" in settings else argparse.SUPPRESS
            settings = {**settings, "help": shown}
            # What a command works on; the others say how it does, and the last value counts.
            if settings.pop("once", False):
                settings["action"] = _OnlyOnce
            if "type" in settings:
                settings["type"] = _TYPES[settings["type"]]
            elif settings.get("action") in (None, "append", _OnlyOnce):
                settings["type"] = _name
            if isinstance(default := settings.get("default"), str):
                settings["default"] = _DEFAULTS.get(default, default)
            parser.add_argument(*names.split(), **settings)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster and the settings for it, which may stand in several places."""
    group = parser.add_argument_group("connection", argument_default=argparse.SUPPRESS)
    add_options(group, "connection")


# Changes.


def is_confirmed(chosen: argparse.Namespace, ask: Callable[[], str] | None = None) -> bool:
    """Return whether to carry out the plan that was shown; say what to do if not."""
    if chosen.dry_run:
        # A hidden option from when only some commands showed their plan first.
        say("--dry-run is not needed any more: without --yes, a command changes nothing unless you confirm its plan.")
    elif chosen.yes:
        return True
    elif ask is not None or (sys.stdin.isatty() and sys.stderr.isatty()):
        print("Carry this out? [y/N] ", end="", file=sys.stderr, flush=True)
        try:
            if (ask or sys.stdin.readline)().strip().lower() in ("y", "yes"):
                return True
        except KeyboardInterrupt:
            say("")
    say("Nothing was changed. Repeat the command with --yes to carry this out.")
    return False


_SERVERS: Final = "bootstrap.servers"
# The options of Spark as they are called here.
_SURFACE: Final = (
    (re.compile(r"\bkafka\.bootstrap\.servers\b"), "--bootstrap-server"),
    (re.compile(r"\bkafka(?:\.(?:default\.api|request)\.timeout\.ms|Consumer\.pollTimeoutMs)\b"), "--timeout-seconds"),
    (re.compile(r"\bkafka\.((?:security|sasl|ssl|https|client)\.[\w.*]+)"), r"\1"),
    # Only after these words: a topic may have such a name as well.
    (re.compile(r"\b(option|Option|Did you mean) (['\"])kafka\."), r"\1 \2"),
    (re.compile(r", with the prefix kafka\."), "."),
)


def options_of(
    chosen: argparse.Namespace, longest_wait_ms: int | None = None, environ: Mapping[str, str] = os.environ
) -> ClientOptions:
    """Return the client's options; `bootstrap_server` and `command_config` of `chosen` are set to what was found.

    Names in the file are the Java client's or librdkafka's. Raises `OptionError` if no cluster is named.
    """
    path, is_given = _file_of(chosen, environ)
    chosen.command_config = path
    settings = {} if path is None else parse_properties(_read(path))
    if of_spark := [name[len(PREFIX) :] for name in settings if name.lower().startswith(PREFIX)]:
        raise OptionError(
            f"The properties file has {counted(len(of_spark), 'setting')} with the prefix of Spark's options, 'kafka.'",
            checked=f"The file is {path}",
            remedy=f"Write the names without the prefix, such as {of_spark[0]}",
        )
    given, own = getattr(chosen, "bootstrap_server", None), settings.get(_SERVERS, "").strip()
    servers = given or (own if is_given else None) or environ.get(SERVER_VARIABLE, "").strip() or own
    if not servers:
        raise OptionError(
            "--bootstrap-server is missing",
            checked=f"{SERVER_VARIABLE} is not set, and no file of --command-config or --profile has {_SERVERS}",
            remedy="Give HOST:PORT, several with commas",
        )
    if own and not is_given and not _addresses(servers) <= _addresses(own):
        raise OptionError(
            f"{'--bootstrap-server' if given else SERVER_VARIABLE} is {servers}, which is not the cluster of {path}",
            checked=f"The file is set in the environment, and has {_SERVERS}={own}",
            remedy=f"To use the file's credentials for {servers}, give --profile or --command-config too. Otherwise "
            f"unset {PROFILE_VARIABLE} and {CONFIG_VARIABLE}",
        )
    chosen.bootstrap_server = settings[_SERVERS] = servers
    try:
        options = client_options({PREFIX + name: value for name, value in settings.items()}, side=ADMIN)
    except OptionError as error:
        raise _in_words_of_the_file(error, settings.keys() - (set() if servers == own else {_SERVERS}), path) from error
    seconds_given = getattr(chosen, "timeout_seconds", None)
    wait_ms = min(options.api_timeout_ms, longest_wait_ms or options.api_timeout_ms)
    wait_ms = wait_ms if seconds_given is None else round(seconds_given * 1000)
    return replace(options, api_timeout_ms=wait_ms, request_timeout_ms=min(options.request_timeout_ms, wait_ms))


def in_words_of_the_command(text: str) -> str:
    """Return a message with the options of Spark as the command line has them.

    >>> in_words_of_the_command("Check that kafka.bootstrap.servers and kafka.security.protocol are right")
    'Check that --bootstrap-server and security.protocol are right'
    """
    for name, here in _SURFACE:
        text = name.sub(here, text)
    return text


def _in_words_of_the_file(error: OptionError, names: Iterable[str], path: str | None) -> OptionError:
    """Return an error with the names that the file has, which are options of Spark without their prefix."""
    texts = [error.happened, error.remedy]
    known = re.compile(rf"(?<![\w.]){re.escape(PREFIX)}({'|'.join(map(re.escape, names))})(?![\w.])")
    texts = [known.sub(r"\1", text) for text in texts]
    if texts == [error.happened, error.remedy]:
        return error
    checked = f"The properties file is {path}" + (f". {error.checked}" if error.checked else "")
    said = OptionError(texts[0], checked=checked, remedy=texts[1])
    said.__notes__ = error.__notes__
    return said


def _addresses(servers: str) -> set[str]:
    return {each.strip() for each in servers.split(",")}


def _file_of(chosen: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return the properties file, and whether the command line names it, not the environment."""
    for config, profile, is_given in (
        (getattr(chosen, "command_config", None), getattr(chosen, "profile", None), True),
        (environ.get(CONFIG_VARIABLE, "").strip(), environ.get(PROFILE_VARIABLE, "").strip(), False),
    ):
        if config and profile:
            raise OptionError("A file and a profile are both given", remedy="Leave out one of them")
        if config or profile:
            return config or _profile_path(str(profile), environ), is_given
    return None, False


def _profile_path(name: str, environ: Mapping[str, str]) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise OptionError(f"The name of the profile is {name!r}", remedy="Use letters, digits, _ and -")
    # As in `expanduser`, a user without a home directory keeps the tilde.
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return str(Path(folder) / "eos-kafka" / f"{name}.properties")


def parse_properties(text: str) -> dict[str, str]:
    r"""Read the settings of a file; of a name that comes twice the last one counts.

    >>> parse_properties("# how to get in\nsecurity.protocol = SASL_SSL\n")
    {'security.protocol': 'SASL_SSL'}
    """
    # Java keeps spaces at the end of a line, where they are always a mistake.
    return {each.name: each.value.rstrip() for each in read_properties(text)}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"Cannot read the properties file: {error}",
            remedy="Give --command-config a properties file in UTF-8, or --profile the name of one",
        ) from error
