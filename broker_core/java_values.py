"""Numbers as Java reads and prints them: what Kafka accepts as the value of a setting, and what its messages show."""

import math
import re
from decimal import Decimal
from typing import Final

_TRIMMED: Final = "".join(map(chr, range(0x21)))
# Java reads the digits of every script.
_WHOLE: Final = re.compile(r"[-+]?\d+")
_DECIMAL: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?[0-9]+")
_NAMED: Final = re.compile(r"[-+]?(?:NaN|Infinity)")
_SUFFIXES: Final = ("f", "F", "d", "D")
# Java prints numbers from the first to below the second without an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7


def trim(text: str) -> str:
    """Return a text without the characters at both ends that Java's `trim` removes."""
    return text.strip(_TRIMMED)


def parse_whole(text: str) -> int | None:
    """Return a whole number of any size, None for a text that is none to Java."""
    if not _WHOLE.fullmatch(text):
        return None
    try:
        return int(text)
    except ValueError:
        # More digits than Python reads, and far more than a number of Java's has.
        return None


def parse_double(text: str) -> float | None:
    """Return the number that `Double.parseDouble` reads, None where it fails; the text is trimmed."""
    if _NAMED.fullmatch(text):
        return float(text)
    number = text[:-1] if text.endswith(_SUFFIXES) else text
    if _DECIMAL.fullmatch(number):
        return float(number)
    if not _HEXADECIMAL.fullmatch(number):
        return None
    try:
        return float.fromhex(number)
    except OverflowError:
        return -math.inf if number.startswith("-") else math.inf


def double_text(value: float) -> str:
    """Return a number as `Double.toString` prints it, such as 1.0E-5."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if not value or _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = (str(digit) for digit in digits)
    scale = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{scale}"
