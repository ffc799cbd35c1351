"""Updates of feature levels."""

from tests.support.messages import levels_request


def update(client, *updates, version=2, validate_only=False):
    return client.ask(levels_request(*updates, version=version, validate_only=validate_only), version)
