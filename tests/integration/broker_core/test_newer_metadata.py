"""A data folder of a newer version is refused, by the command and by the embedded broker."""

import pytest

from broker_core import EmbeddedBroker
from broker_core.__main__ import main
from broker_core.errors import DamageError
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CLUSTER_METADATA_TOPIC


def test_data_directory_of_a_newer_version_is_refused(tmp_path, capsys):
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        metadata = tmp_path / f"{CLUSTER_METADATA_TOPIC}-0"
        kafka.create_topic("t", 1)
    [path] = metadata.glob("*.log")
    newer = build_batch([NewRecord(b"quota/", b'{"type": "quota"}', (), 0)], base_offset=1_000)
    path.write_bytes(path.read_bytes() + newer)
    assert main(["--port", "0", "--data-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().err
    assert output.startswith("broker_core cannot start: record 1000 of the cluster's metadata cannot be read")
    with pytest.raises(DamageError, match="newer version"):
        EmbeddedBroker(data_dir=tmp_path).start()
