"""Principals, and the rules that map the subjects of certificates to user names.

Subjects are formatted as in Java.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_core.errors import ConfigError, MissingExtraError

try:
    # Only to find out that it is missing before a certificate is read: `asn1crypto.x509` takes 10 ms to import.
    import asn1crypto  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("asn1crypto", "broker") from error

if TYPE_CHECKING:
    from asn1crypto.x509 import Name, NameTypeAndValue


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal: its type, `User` unless a custom one is defined, and its name.

    >>> str(Principal("User", "alice"))
    'User:alice'
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def user(name: str) -> Principal:
    return Principal("User", name)


# The principal of a client that was not authenticated.
ANONYMOUS = user("ANONYMOUS")

# The principal of requests that a test sends inside the process. It is a super user; clients are of type User only.
LOCAL_CLIENT = Principal("Embedded", "broker_core")


# The keywords of RFC 2253. Other attributes are written as object identifier and hexadecimal value.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_QUOTED: Final = _ESCAPED | {"\n"}
_IN_QUOTES: Final = str.maketrans({'"': '\\"', "\\": "\\\\"})
# The numbers of the kinds of names that brokers are checked for.
_ALTERNATIVES: Final = {"rfc822_name": 1, "dns_name": 2, "uniform_resource_identifier": 6, "ip_address": 7}
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate in the format of RFC 2253: `CN=alice,O=Example`."""
    from asn1crypto.x509 import Certificate

    return printed_name(Certificate.load(certificate).subject)


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The subject of a certificate as Java prints it, and the other names, each with the number of its kind."""

    subject: str
    alternatives: frozenset[tuple[int, str]]


def certificate_names(certificate: bytes) -> CertificateNames:
    """Return the names in a DER certificate; raise ValueError for other bytes."""
    from asn1crypto.x509 import Certificate

    read = Certificate.load(certificate)
    others = read.subject_alt_name_value or ()
    parts = [[_quoted_attribute(pair) for pair in part] for part in reversed(list(read.subject.chosen))]
    return CertificateNames(
        ", ".join(" + ".join(part) for part in parts),
        frozenset((_ALTERNATIVES[each.name], str(each.native)) for each in others if each.name in _ALTERNATIVES),
    )


def _quoted_attribute(pair: "NameTypeAndValue") -> str:
    keyword, text = _KEYWORDS.get(pair["type"].dotted, f"OID.{pair['type'].dotted}"), str(pair["value"].native)
    needs_quotes = text != text.strip() or "  " in text or bool(_QUOTED.intersection(text))
    return f'{keyword}="{text.translate(_IN_QUOTES)}"' if needs_quotes else f"{keyword}={text}"


def printed_name(name: "Name") -> str:
    """Return a distinguished name in the format of RFC 2253."""

    def attribute(pair: "NameTypeAndValue") -> str:
        number, value = pair["type"].dotted, pair["value"]
        keyword, text = _KEYWORDS.get(number), value.native
        if keyword is None or not isinstance(text, str):
            return f"{keyword or number}=#{value.dump().hex()}"
        return f"{keyword}={_escape(text)}"

    return ",".join("+".join(map(attribute, part)) for part in reversed(list(name.chosen)))


def _escape(text: str) -> str:
    inner = text.strip(" \r")
    start = text.find(inner) if inner else len(text)
    end = start + len(inner)
    return "".join(
        "\\00"
        if character == "\0"
        else f"\\{character}"
        if character in _ESCAPED or not start <= index < end
        else character
        for index, character in enumerate(text)
    )


class PrincipalRules:
    """The rules of `ssl.principal.mapping.rules`, which map distinguished names to user names.

    >>> PrincipalRules("RULE:^CN=(.*?),.*$/$1/L, DEFAULT").apply("CN=Alice,O=Example")
    'alice'
    """

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        position, text = 0, text.strip()
        while position < len(text):
            rule = _RULE.match(text, position)
            if rule is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {text[position:]!r} is neither DEFAULT nor "
                    "RULE:pattern/replacement/[LU]"
                )
            self._rules.append((None, "", "") if rule[1] else _compile(rule))
            position = rule.end()

    def apply(self, name: str) -> str | None:
        """Return the user name by the first rule that matches `name`, None if no rule matches."""
        for pattern, replacement, letters in self._rules:
            if pattern is None:
                return name
            if pattern.fullmatch(name):
                short = pattern.sub(replacement, name)
                return short.lower() if letters == "L" else short.upper() if letters == "U" else short
        return None


def _compile(rule: re.Match[str]) -> tuple[re.Pattern[str], str, str]:
    try:
        pattern = re.compile(rule[2])
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {rule[2]!r} is not a regular expression: {error}") from None

    def python(found: re.Match[str]) -> str:
        """Return the Python form of a Java group reference; if the pattern has no such group, the literal text."""
        if found[1] is not None:
            return found[1].replace("\\", "\\\\")
        return rf"\g<{found[2]}>" if int(found[2]) <= pattern.groups else found[0]

    return pattern, _REFERENCE.sub(python, rule[3]), rule[4]
