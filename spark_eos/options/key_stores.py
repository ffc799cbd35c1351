"""The files of `ssl.truststore.*` and `ssl.keystore.*`: PEM, PKCS12 and JKS."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spark_eos.errors import OptionError

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


class TlsFiles(NamedTuple):
    """The files of trusted certificates, of the client's certificate and of its key; the last two may be one file."""

    trusted: str | None
    certificate: str | None
    key: str | None


def tls_files(settings: Mapping[str, str]) -> TlsFiles:
    """Return the files that the settings name; the content of a file decides its format when it is read."""
    for name in ("ssl.truststore", "ssl.keystore", "ssl.certificate", "ssl.key"):
        if "-----BEGIN" in settings.get(f"{name}.location", ""):
            # Text that is not a file name may be a key, so it is not shown.
            raise OptionError(
                f"kafka.{name}.location contains PEM text instead of a file name",
                remedy="Set PEM text with kafka.ssl.truststore.certificates, "
                "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key",
            )
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if settings.get(name, "PEM").strip().upper() not in STORE_TYPES:
            raise OptionError(
                f"Option 'kafka.{name}' is {settings[name]!r}",
                remedy=f"Use one of {', '.join(STORE_TYPES)}; convert other stores with `keytool -importkeystore "
                "... -deststoretype PKCS12`",
            )
    keystore = settings.get("ssl.keystore.location")
    certificate = settings.get("ssl.certificate.location", keystore)
    return TlsFiles(settings.get("ssl.truststore.location"), certificate, settings.get("ssl.key.location", certificate))
