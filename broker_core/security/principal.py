"""Name who a client is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Be one user as ACLs name it: a kind, which is `User` unless somebody defines others, and a name.

    >>> str(Principal("User", "alice"))
    'User:alice'
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def user(name: str) -> Principal:
    """Return the principal of a user name."""
    return Principal("User", name)


# Who a client is that was not asked.
ANONYMOUS = user("ANONYMOUS")
