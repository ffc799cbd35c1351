"""The APIs of share groups, collected from the declarations beside their handlers."""

from typing import Final

from broker_core.broker.api import Api
from broker_core.features.share_groups.handlers import acknowledge, fetch, groups, offsets, states

APIS: Final[tuple[Api, ...]] = (
    *acknowledge.APIS,
    *fetch.APIS,
    *groups.APIS,
    *offsets.APIS,
    *states.APIS,
)
