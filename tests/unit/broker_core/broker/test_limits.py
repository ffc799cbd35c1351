"""A broker without a feature that limits clients."""

from broker_core.broker.limits import AddressLimits, ClientLimits


def test_without_limits_no_client_is_throttled() -> None:
    limits, much = ClientLimits(), 2**62
    assert not limits.stored
    assert limits.most_fetched_bytes("ann", "c") is None
    assert [limits.produced("ann", "c", much, 0), limits.fetched("ann", "c", much, 0)] == [0, 0]
    assert limits.spent("Produce", "ann", "c", much, 0) == 0
    assert limits.mutated("ann", "c", much, 0, is_strict=True) == 0
    assert [AddressLimits().throttle_ms("127.0.0.1", 0) for _ in range(1000)] == [0] * 1000
