"""The arithmetic of quotas: the examples follow Kafka's Rate, SampledStat, QuotaUtils and TokenBucket."""

import pytest

from broker_core.features.quotas.limits import Rate, TokenBucket

NOW_MS = 1_000_000


def test_a_burst_at_the_beginning_is_spread_over_all_windows_but_one():
    rate = Rate(11, 1000)
    rate.record(20_000, NOW_MS)
    assert rate.measure(NOW_MS) == 2000
    assert rate.throttle_ms(1000, NOW_MS) == 10_000
    assert rate.throttle_ms(2000, NOW_MS) == 0


def test_an_elapsed_part_of_a_window_counts_in_addition():
    rate = Rate(11, 1000)
    rate.record(21_000, NOW_MS)
    assert rate.measure(NOW_MS + 500) == 2000


def test_a_rate_falls_while_nothing_is_recorded():
    rate = Rate(11, 1000)
    rate.record(22_000, NOW_MS)
    assert rate.measure(NOW_MS + 10_900) == pytest.approx(22_000 / 10.9)
    assert rate.measure(NOW_MS + 11_000) == 0


def test_after_the_throttle_time_the_rate_is_at_the_limit():
    rate = Rate(11, 1000)
    rate.record(10_400, NOW_MS)
    throttle_ms = rate.throttle_ms(1000, NOW_MS)
    assert throttle_ms == 400
    assert rate.measure(NOW_MS + throttle_ms) == 1000


def test_what_is_taken_back_does_not_count():
    rate = Rate(11, 1000)
    rate.record(5000, NOW_MS)
    rate.record(-5000, NOW_MS)
    assert rate.measure(NOW_MS) == 0


def test_a_bucket_is_full_at_first_and_refills():
    bucket = TokenBucket(11)
    assert bucket.throttle_ms(2, NOW_MS) == 0
    bucket.take(23, 2, NOW_MS)
    assert bucket.throttle_ms(2, NOW_MS) == 500
    assert bucket.throttle_ms(2, NOW_MS + 500) == 0
    bucket.take(1, 2, NOW_MS + 500)
    assert bucket.throttle_ms(2, NOW_MS + 500) == 500
    assert bucket.throttle_ms(2, NOW_MS + 60_000) == 0
    bucket.take(22, 2, NOW_MS + 60_000)
    assert bucket.throttle_ms(2, NOW_MS + 60_000) == 0
