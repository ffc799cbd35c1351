"""Lines that name a Java login module and its options, as in `sasl.jaas.config`."""

import re
from typing import Final, NamedTuple

_MODULE: Final = re.compile(r"\s*([\w.$]+)(\s+(?:required|requisite|sufficient|optional)\b)?", re.IGNORECASE)
_OPTION: Final = re.compile(r"""\s+(\w[\w.\-@]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_END: Final = re.compile(r"\s*;\s*")


class JaasLine(NamedTuple):
    """A login module and its options; complete with a control flag, a semicolon and nothing after it."""

    module: str
    options: dict[str, str]
    is_complete: bool


def read_jaas(text: str) -> JaasLine:
    """Read one line, as far as it can be read.

    >>> read_jaas('PlainLoginModule required user_alice="secret";')
    JaasLine(module='PlainLoginModule', options={'user_alice': 'secret'}, is_complete=True)
    """
    found = _MODULE.match(text)
    if found is None:
        return JaasLine("", {}, False)
    module, has_flag = found[1], found[2] is not None
    options: dict[str, str] = {}
    position = found.end()
    while (found := _OPTION.match(text, position)) is not None:
        quoted = found[2] if found[2] is not None else found[3]
        options[found[1]] = found[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = found.end()
    return JaasLine(module, options, has_flag and _END.fullmatch(text, position) is not None)
