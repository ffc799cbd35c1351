"""Updates of feature levels."""

from broker_core.wire import messages as m
from tests.support.messages import filled

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(client, *updates, version=2, validate_only=False):
    kinds = [{"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE} for _, _, kind in updates]
    changes = [
        {"feature": feature, "max_version_level": level, **kind}
        for (feature, level, _), kind in zip(updates, kinds, strict=True)
    ]
    request = filled(m.UpdateFeaturesRequest, validate_only=validate_only, feature_updates=changes)
    return client.ask(request, version)
