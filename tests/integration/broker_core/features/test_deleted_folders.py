"""A broker whose folder of a feature is deleted: the rest imports and works."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from broker_core import EmbeddedBroker
from broker_core.broker.apis import SERVED
from broker_core.broker.cluster import Cluster
from broker_core.features.quotas.records import set_quotas
from broker_core.installed import part
from broker_core.wire.api_names import ApiName
from tests.support.architecture import Use, read_modules
from tests.support.without_feature import FEATURES, FOLDER, ROOT, SESSIONS, copy_without, files_with, run_in

pytestmark = pytest.mark.confluent
DEADLINE_S = 240


def test_the_broker_works_without_each_feature_and_without_any(tmp_path: Path) -> None:
    """One process for all copies: importing the libraries takes longer than the session."""
    copies = {feature: tmp_path / (feature if feature != "." else "none") for feature in (*FEATURES, ".")}
    for feature, copy in copies.items():
        copy.mkdir()
        copy_without(feature, copy, "broker_core")
    assert not (copies["."] / FOLDER).exists()
    done = run_in(tmp_path, "-c", SESSIONS, *map(str, copies.values()), timeout=DEADLINE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def ensure_share_state(cluster: Cluster) -> None:
    cluster.controller.ensure_topic("__share_group_state")


def set_a_quota(cluster: Cluster) -> None:
    set_quotas(cluster.metadata, (("user", "a"),), {"producer_byte_rate": 1.0})


@pytest.mark.parametrize(
    ("feature", "write", "refusal"),
    [
        ("share_groups", ensure_share_state, ""),
        (
            "quotas",
            set_a_quota,
            "the data folder may be of a newer version, or of a broker with a feature that this one lacks",
        ),
    ],
)
def test_data_of_a_missing_feature_is_kept_or_refused(
    feature: str, write: Callable[[Cluster], None], refusal: str, tmp_path: Path
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    copy.mkdir()
    copy_without(feature, copy, "broker_core")
    with EmbeddedBroker(listeners={}, topics={"in": 1}, data_dir=data) as kafka:
        kafka._call(write)
    program = (
        "from broker_core import EmbeddedBroker\n"
        f"with EmbeddedBroker(listeners={{}}, data_dir={str(data)!r}) as kafka: kafka.produce('in', b'value')"
    )
    again = run_in(copy, "-c", program, timeout=DEADLINE_S)
    assert refusal in again.stderr
    assert (again.returncode != 0) is bool(refusal), again.stderr


def test_the_core_imports_no_feature_by_name() -> None:
    package = ".".join(FOLDER.parts)

    def is_of_a_feature(use: Use) -> bool:
        return use.is_import and use.name.startswith(f"{package}.")

    # The public names may be of a feature: `broker_core` imports them when they are first used.
    modules = [module for module in read_modules(ROOT, "broker_core") if module.name != "broker_core"]
    core = [module for module in modules if not module.name.startswith(package)]
    assert len(core) > len(FEATURES)
    assert [(module.name, use.name) for module in core for use in module.uses if is_of_a_feature(use)] == []


@pytest.mark.parametrize("feature", FEATURES)
def test_only_tests_that_need_a_feature_are_left_out_without_it(feature: str) -> None:
    left_out = files_with(feature)
    own = {path.relative_to(ROOT) for path in (ROOT / "tests" / "unit" / FOLDER / feature).rglob("*.py")}
    assert own
    assert own <= left_out
    # The public names of `broker_core` include some of a feature; to import another one needs no feature.
    # A plugin of all tests, which imports `EmbeddedBroker`.
    assert Path("tests", "support", "spark_eos", "brokers.py") not in left_out


def test_with_all_features_each_api_of_a_name_is_served() -> None:
    assert sorted(api.name for api in SERVED.values()) == list(get_args(ApiName))


def test_a_missing_feature_is_named_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"no feature 'teleport': the folder .*teleport is missing; install"):
        part("teleport", "service")
