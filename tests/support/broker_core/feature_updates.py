"""Updates of feature levels."""

from broker_core.wire import messages as m

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(client, *updates, version=2, validate_only=False):
    form = m.UpdateFeaturesRequest.FeatureUpdateKey
    kinds = [{"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE} for _, _, kind in updates]
    return client.ask(
        m.UpdateFeaturesRequest(
            validate_only=validate_only,
            feature_updates=[
                form(feature=feature, max_version_level=level, **kind)
                for (feature, level, _), kind in zip(updates, kinds, strict=True)
            ],
        ),
        version,
    )
