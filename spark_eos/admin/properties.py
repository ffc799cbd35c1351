"""The cluster that a command works on: named at the command line, by the environment, or by a profile.

`--bootstrap-server`, `--command-config`, `--profile` and `--timeout-seconds` are accepted by every command, before and
after its name. The file of `--command-config` is a properties file in the format of Kafka's own tools. A profile is
such a file with `bootstrap.servers` in it: `--profile test` reads `~/.config/eos-kafka/test.properties`.

What the command line names counts before the environment. A file of the environment that names its cluster is used for
that cluster only: its credentials do not reach another address.
"""

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker_core.properties import read_properties
from spark_eos.admin.parsers import CONFIG_VARIABLE, PROFILE_VARIABLE, SERVER_VARIABLE
from spark_eos.errors import OptionError
from spark_eos.options.catalog import ADMIN
from spark_eos.options.client import PREFIX, ClientOptions, client_options

_SERVERS: Final = "bootstrap.servers"
# The options of Spark as they are called here.
_SURFACE: Final = (
    (re.compile(r"\bkafka\.bootstrap\.servers\b"), "--bootstrap-server"),
    (re.compile(r"\bkafka\.(?:default\.api|request)\.timeout\.ms\b"), "--timeout-seconds"),
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
    given, own = getattr(chosen, "bootstrap_server", None), settings.get(_SERVERS)
    servers = given or (own if is_given else None) or environ.get(SERVER_VARIABLE) or own
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
        (environ.get(CONFIG_VARIABLE), environ.get(PROFILE_VARIABLE), False),
    ):
        if config and profile:
            raise OptionError("A file and a profile are both given", remedy="Leave out one of them")
        if config or profile:
            return config or _profile_path(str(profile), environ), is_given
    return None, False


def _profile_path(name: str, environ: Mapping[str, str]) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise OptionError(f"The name of the profile is {name!r}", remedy="Use letters, digits, _ and -")
    folder = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return str(folder / "eos-kafka" / f"{name}.properties")


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
