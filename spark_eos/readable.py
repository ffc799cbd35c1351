"""Times, ages and names as people read them in messages, and names that cannot control a terminal."""

from time import gmtime, strftime
from typing import Final

# Names come from anyone who may write to the cluster: at a terminal, a control character in one is a command. Others
# break the line, or show what follows from right to left, so that a command reads as another one.
_BREAKS_AND_DIRECTIONS: Final = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in _BREAKS_AND_DIRECTIONS
}
_CONTROLS_IN_LINES: Final = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


def one_line(name: str) -> str:
    r"""Return a name with its control characters as escapes.

    >>> print(one_line("writer\x1b[2J\n"))
    writer\x1b[2J\x0a
    """
    return name.translate(_CONTROLS)


def printable(text: str) -> str:
    """Return a text with control characters as escapes, but for the ends of its lines and tabs."""
    return text.translate(_CONTROLS_IN_LINES)


def utc(at_ms: int) -> str:
    """Format a time in milliseconds since 1970; one from outside may be out of range."""
    try:
        return strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(at_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"time {at_ms}"


def age_text(age_ms: int) -> str:
    """Return a duration in its largest units.

    >>> [age_text(each) for each in (900, 59_999, 61_000, 3_600_000, 90_000_000)]
    ['0 s', '59 s', '1m 01s', '1h 00m', '1d 1h']
    """
    seconds = max(age_ms, 0) // 1_000
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60:02}m"
    return f"{minutes}m {seconds % 60:02}s" if minutes else f"{seconds} s"
