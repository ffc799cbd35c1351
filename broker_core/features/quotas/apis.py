"""The APIs that describe and change the quotas of clients (KIP-546)."""

import math
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.request_context import ApiCall
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.quotas.limits import CLIENT_ID, IP, OF_ADDRESSES, OF_USERS, USER
from broker_core.features.quotas.records import QuotaEntity, Quotas, set_quotas
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from broker_core.wire.served import echo

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_TYPES: Final = (USER, CLIENT_ID, IP)
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def describe(context: ApiCall[m.DescribeClientQuotasRequest]) -> m.DescribeClientQuotasResponse:
    response = m.DescribeClientQuotasResponse
    try:
        require(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check_filter(context.body.components)
    except KafkaError as error:
        # Kafka gives a reason for a wrong filter only.
        message = None if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error.message
        return response(error_code=error.code, error_message=message, entries=None)
    form = response.EntryData
    entries = [
        form(
            entity=[form.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[form.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in context.broker.metadata.state(Quotas).items()
        if _matches(context.body, dict(entity))
    ]
    return response(error_code=0, error_message="", entries=entries)


def _check_filter(components: Iterable[m.DescribeClientQuotasRequest.ComponentData]) -> None:
    kinds: set[str] = set()
    for each in components:
        kind, match = each.entity_type, each.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        kinds.add(kind)
        if kind not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type == _EXACT and match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type in (_DEFAULT, _SPECIFIED) and match is not None:
            name = "MATCH_TYPE_DEFAULT" if each.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        if each.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {each.match_type}")
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )


def _matches(body: m.DescribeClientQuotasRequest, names: Mapping[str, str | None]) -> bool:
    if body.strict and len(names) != len(body.components):
        return False
    return all(
        each.entity_type in names and (each.match_type == _SPECIFIED or names[each.entity_type] == each.match)
        for each in body.components
    )


def alter(context: ApiCall[m.AlterClientQuotasRequest]) -> m.AlterClientQuotasResponse:
    verdicts: dict[QuotaEntity, tuple[int, str | None]] = {}
    for entry in context.body.entries:
        # In the order in which entities are stored.
        entity = tuple(sorted({part.entity_type: part.entity_name for part in entry.entity}.items()))
        keys = [change.key for change in entry.ops]
        try:
            require(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
            if entity in verdicts or len(set(keys)) < len(keys):
                named = ", ".join(f"{kind}={name}" for kind, name in entity)
                raise _invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{named}}})")
            allowed = _allowed(entity)
            values = dict(context.broker.metadata.state(Quotas).get(entity, {}))
            for change in entry.ops:
                if change.remove:
                    values.pop(change.key, None)
                else:
                    _check_value(change.key, change.value, allowed)
                    values[change.key] = change.value
            if not context.body.validate_only:
                set_quotas(context.broker.metadata, entity, values)
            verdicts[entity] = (ErrorCode.NONE, None)
        except KafkaError as error:
            verdicts[entity] = (error.code, error.message)
    form = m.AlterClientQuotasResponse.EntryData
    entries = [
        form(
            error_code=code,
            error_message=message,
            entity=[form.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        for entity, (code, message) in verdicts.items()
    ]
    return m.AlterClientQuotasResponse(entries=entries)


def _allowed(entity: QuotaEntity) -> Mapping[str, tuple[str, float] | None]:
    """Return the quotas that an entity may have; raise INVALID_REQUEST for an entity that cannot exist."""
    names = dict(entity)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return OF_USERS
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        )
    address = names[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    """Return whether it is an address or looks like a host name; names other than localhost are not resolved here."""
    try:
        ip_address(text)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text))
    return True


def _check_value(key: str, value: float, allowed: Mapping[str, tuple[str, float] | None]) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    whole = allowed[key]
    if whole is not None and value > whole[1]:
        raise _invalid(f"Proposed value for {key} is too large for {'an' if whole[0] == 'INT' else 'a'} {whole[0]}.")
    if whole is not None and value != int(value):
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


APIS = (
    api(m.DescribeClientQuotasRequest, (0, 1), describe, "DESCRIBE_CONFIGS CLUSTER"),
    api(
        m.AlterClientQuotasRequest,
        (0, 1),
        alter,
        "ALTER_CONFIGS CLUSTER",
        echoes=echo("entries", "entries", echo("entity")),
    ),
)
