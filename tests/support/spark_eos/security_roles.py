"""The rights of each role as the documentation's table, and as the ACLs that tests grant."""

from collections.abc import Mapping

from kafka.admin import ACLResourcePatternType

from broker_core.security.acls import CLUSTER_NAME
from spark_eos.admin.rights import EVERY, ITSELF, OPTIONAL, PREFIX, ROLES, Right

BEGIN, END = "<!-- rights: checked by tests/integration/spark_eos/security/test_rights.py -->", "<!-- end of rights -->"


def resource(right: Right, names: Mapping[str, str]) -> tuple[str, ACLResourcePatternType]:
    """Return the resource of a right for these names."""
    if right.place == PREFIX:
        return f"{names[PREFIX]}.", ACLResourcePatternType.PREFIXED
    return {EVERY: "*", ITSELF: CLUSTER_NAME}.get(right.place) or names[right.place], ACLResourcePatternType.LITERAL


def table() -> str:
    """Return the table of `docs/security/access-control.md`."""
    lines = ["| role | operation | on | for |", "|---|---|---|---|"]
    for role, rights in ROLES.items():
        for right in rights:
            lines.append(_line(role, right, ""))
        lines += [_line(role, right, "optional: ") for right in OPTIONAL.get(role, ())]
    return "\n".join(lines)


def _line(role: str, right: Right, word: str) -> str:
    on = right.kind if right.place == ITSELF else f"{right.kind}: {right.place}"
    return f"| {role} | {right.operation.name} | {on} | {word}{right.purpose} |"
