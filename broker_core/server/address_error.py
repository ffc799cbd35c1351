"""The error of an address that cannot be used."""

from broker_core.types import address_text


def address_error(doing: str, host: str, port: int, error: OSError) -> OSError:
    """Return an error that says what cannot be done at the address, why, and what to do."""
    # `socket.create_server` adds the address in parentheses.
    reason = (error.strerror or str(error)).partition(" (")[0]
    remedy = "give another address, or port 0 for a free one"
    return OSError(error.errno, f"cannot {doing} on {address_text(host, port)}: {reason}; {remedy}")
