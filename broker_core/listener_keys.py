"""Keys of settings with the prefix of one listener, `listener.name.<listener>.<key>`."""

from typing import NamedTuple

LISTENER_PREFIX = "listener.name."


class ListenerKey(NamedTuple):
    """A key with the prefix of a listener: the listener's name, and the setting without the prefix."""

    listener: str
    base: str


def listener_key(key: str) -> ListenerKey | None:
    """Return the parts of a key with the prefix of a listener, None for other keys.

    >>> listener_key("listener.name.tls.ssl.keystore.key")
    ListenerKey(listener='tls', base='ssl.keystore.key')
    """
    listener, dot, base = key.removeprefix(LISTENER_PREFIX).partition(".")
    return ListenerKey(listener, base) if dot and key.startswith(LISTENER_PREFIX) else None
