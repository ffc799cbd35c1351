"""A broker whose folder of a feature is deleted: the rest imports and works."""

from pathlib import Path
from typing import get_args

import pytest

from broker_core.broker.apis import SERVED
from broker_core.installed import part
from broker_core.wire.api_names import ApiName
from tests.support.architecture import Use, read_modules
from tests.support.without_feature import FEATURES, FOLDER, ROOT, SESSION, copy_without, run_in

pytestmark = pytest.mark.confluent
DEADLINE_S = 60


@pytest.mark.parametrize("feature", FEATURES)
def test_the_broker_works_without_a_feature(feature: str, tmp_path: Path) -> None:
    copy_without(feature, tmp_path, "broker_core")
    done = run_in(tmp_path, "-c", SESSION, str(tmp_path), timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr


def test_the_broker_works_without_any_feature(tmp_path: Path) -> None:
    copy_without(".", tmp_path, "broker_core")
    assert not (tmp_path / FOLDER).exists()
    done = run_in(tmp_path, "-c", SESSION, str(tmp_path), timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr


def test_the_core_imports_no_feature_by_name() -> None:
    package = ".".join(FOLDER.parts)

    def is_of_a_feature(use: Use) -> bool:
        return use.is_import and use.name.startswith(f"{package}.")

    # The public names may be of a feature: `broker_core` imports them when they are first used.
    modules = [module for module in read_modules(ROOT, "broker_core") if module.name != "broker_core"]
    core = [module for module in modules if not module.name.startswith(package)]
    assert len(core) > len(FEATURES)
    assert [(module.name, use.name) for module in core for use in module.uses if is_of_a_feature(use)] == []


def test_with_all_features_each_api_of_a_name_is_served() -> None:
    assert sorted(api.name for api in SERVED.values()) == list(get_args(ApiName))


def test_a_missing_feature_is_named_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"no feature 'teleport': the folder .*teleport is missing; install"):
        part("teleport", "service")
