"""A Kerberos realm on this machine: MIT's KDC over a temporary folder."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.apache_kafka import Unavailable, free_ports, stop_process
from tests.support.child_process import start_child
from tests.support.waiting import wait_until

REALM = "EXAMPLE.TEST"
_DEADLINE_S = 30
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_CLIENT = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = {realm}
"""
_KDC = """[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""


@dataclass(frozen=True)
class Realm:
    """A running realm; `config` is the krb5.conf of its clients."""

    folder: Path
    config: Path
    environment: dict[str, str]

    def keytab(self, principal: str, *, lifetime: str = "1 hour") -> Path:
        """Add a principal whose tickets live this long, and return its keytab."""
        path = self.folder / f"{re.sub('[^a-z]', '-', principal)}.keytab"
        self._administer(f'addprinc -randkey -maxlife "{lifetime}" {principal}')
        self._administer(f"ktadd -k {path} {principal}")
        return path

    def kinit(self, principal: str, keytab: Path, cache: Path, *, lifetime: str = "1h") -> None:
        """Put a ticket into a cache, as users do."""
        _run(["kinit", "-k", "-t", str(keytab), "-l", lifetime, "-c", str(cache), principal], self.environment)

    def tickets_of(self, principal: str) -> int:
        """Return how many tickets the KDC has issued to a principal that authenticated, not counting services."""
        log = (self.folder / "kdc.log").read_text(encoding="utf-8")
        return len(re.findall(rf"AS_REQ .* ISSUE: .* {re.escape(principal)}@{REALM} for krbtgt/", log))

    def _administer(self, query: str) -> None:
        _run(["kadmin.local", "-r", REALM, "-q", query], self.environment)


def _run(words: list[str], environment: dict[str, str]) -> None:
    ran = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=_DEADLINE_S, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 0, f"{words[0]}: {ran.stdout}{ran.stderr}"


@contextmanager
def kerberos_realm(folder: Path) -> Iterator[Realm]:
    """Run a KDC until the block ends; raises `Unavailable` if its programs are missing."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        raise Unavailable(
            f"no Kerberos KDC: {', '.join(missing)} missing; install krb5-kdc, krb5-admin-server and krb5-user"
        )
    [port] = free_ports(1)
    config, kdc = folder / "krb5.conf", folder / "kdc.conf"
    config.write_text(_CLIENT.format(realm=REALM, port=port), encoding="utf-8")
    kdc.write_text(_KDC.format(realm=REALM, port=port, folder=folder), encoding="utf-8")
    environment = {**os.environ, "PATH": path, "KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(kdc)}
    _run(["kdb5_util", "create", "-s", "-r", REALM, "-P", "master"], environment)
    process = start_child(
        [str(shutil.which("krb5kdc", path=path)), "-n", "-r", REALM, "-P", str(folder / "kdc.pid")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        log = folder / "kdc.log"
        wait_until(
            lambda: process.poll() is not None or (log.exists() and "commencing operation" in log.read_text()),
            "the KDC runs",
            deadline_s=_DEADLINE_S,
        )
        assert process.poll() is None, "the KDC ended"
        yield Realm(folder, config, environment)
    finally:
        stop_process(process)
