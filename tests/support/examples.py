"""How many examples property tests try, and whether they are new; HYPOTHESIS_PROFILE names the profile.

- `repeat`: half as many as a test names, the same in every run, so that a new failure comes from a change
- `short`: the first half of those, for the short form of searches
- `brief`: the first quarter of those, for `make check`
- `search`: ten times as many as a test names, new in every run

Without a name it is `repeat`, or `short` with `SEARCHES=short`.
"""

import os
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings

from tests.support.short_form import note

_SHARES = {"repeat": 0.5, "short": 0.25, "brief": 0.125, "search": 10.0}
_USUAL = 100


def profile_of(environ: Mapping[str, str]) -> str:
    """Return the name of the profile that an environment asks for."""
    return environ.get("HYPOTHESIS_PROFILE") or ("short" if environ.get("SEARCHES") == "short" else "repeat")


_PROFILE = profile_of(os.environ)


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
    if _PROFILE == "short":
        note("property tests: the first half of their examples; `make test SEARCHES=whole` tries all")


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a test that tries this many examples, times the share of the profile."""
    return settings(max_examples=max(1, int(count * _SHARES[_PROFILE])), **more)
