"""How many examples property tests try, and whether they are new; HYPOTHESIS_PROFILE names the profile.

- `repeat`: half as many as a test names, the same in every run, so that a new failure comes from a change
- `brief`: the first quarter of those, for `make check`
- `search`: ten times as many as a test names, new in every run
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings

_SHARES = {"repeat": 0.5, "brief": 0.125, "search": 10.0}
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeat")
_USUAL = 100


def load_profile() -> None:
    """Apply the profile to tests without settings of their own."""
    for name, share in _SHARES.items():
        settings.register_profile(
            name,
            max_examples=int(_USUAL * share),
            derandomize=name != "search",
            deadline=None,
            # Slow generation on a slow machine is no failure.
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(_PROFILE)


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a test that tries this many examples, times the share of the profile."""
    return settings(max_examples=max(1, int(count * _SHARES[_PROFILE])), **more)
