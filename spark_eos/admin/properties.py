"""The properties file that says how to reach a secured cluster, in the form of Kafka's own tools."""

import re
from pathlib import Path
from typing import Final

from spark_eos.errors import OptionError
from spark_eos.options.client import PREFIX, ClientOptions, client_options

_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def options_of(bootstrap_servers: str, config_path: str | None) -> ClientOptions:
    """Give the client's options from the command line; names in the file are the Java client's or librdkafka's."""
    settings = {} if config_path is None else parse_properties(_read(config_path))
    settings["bootstrap.servers"] = bootstrap_servers
    return client_options({PREFIX + name: value for name, value in settings.items()}, side="admin client")


def parse_properties(text: str) -> dict[str, str]:
    r"""Read `name=value` lines as Java does: comments, continued lines, escapes.

    >>> parse_properties('# how to get in\nsecurity.protocol = SASL_SSL\n')
    {'security.protocol': 'SASL_SSL'}
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        name, value = (pair[1], pair[2]) if pair else (line, "")
        found[_unescape(name)] = _unescape(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    is_continued = False
    for natural in text.splitlines():
        line = natural.lstrip()
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        whole = line[:-1] if backslashes % 2 else line.rstrip()
        if is_continued:
            lines[-1] += whole
        else:
            lines.append(whole)
        is_continued = backslashes % 2 == 1
    return lines


def _unescape(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) == 5 else _ESCAPED.get(found[1], found[1]), text
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"The file given with --command-config cannot be read: {error}", remedy="Give a UTF-8 properties file"
        ) from error
