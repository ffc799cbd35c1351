"""Read the one line of JAAS in which Kafka's settings name users and options."""

import re
from typing import Final

from broker_core.errors import ConfigError

_MODULE: Final = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION: Final = re.compile(r"""\s+(\w[\w.\-@]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_END: Final = re.compile(r"\s*;\s*")
_USER: Final = "user_"


def parse_jaas(key: str, text: str) -> dict[str, str]:
    """Return the options of the line; `ConfigError` names the setting and never quotes the line, which has secrets.

    >>> parse_jaas("k", 'PlainLoginModule required user_alice="secret";')
    {'user_alice': 'secret'}
    """
    found = _MODULE.match(text)
    options: dict[str, str] = {}
    while found is not None:
        position = found.end()
        if _END.fullmatch(text, position):
            return options
        found = _OPTION.match(text, position)
        if found is not None:
            quoted = next(part for part in found.groups()[1:] if part is not None)
            options[found[1]] = re.sub(r"\\(.)", r"\1", quoted) if found[4] is None else quoted
    raise ConfigError(f'{key}: expected one login module, such as PlainLoginModule required user_alice="secret";')


def users_of(options: dict[str, str]) -> dict[str, str]:
    """Return names and passwords of the options `user_<name>="<password>"`.

    >>> users_of({"username": "x", "user_alice": "secret"})
    {'alice': 'secret'}
    """
    return {name.removeprefix(_USER): password for name, password in options.items() if name.startswith(_USER)}
