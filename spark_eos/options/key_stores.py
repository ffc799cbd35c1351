"""The files and the text of `ssl.truststore.*` and `ssl.keystore.*`: PEM, PKCS12 and JKS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_eos.errors import OptionError
from spark_eos.options.catalog import DECLARED

STORE_TYPES: Final = DECLARED["ssl.truststore.type"].choices
TRUST_STORE: Final = "ssl.truststore.location"
OF_KAFKA: Final = "kafka.{}"
OF_JAAS: Final = "{} in kafka.sasl.jaas.config"


@dataclass(frozen=True, slots=True)
class KeyStores:
    """What a client trusts, and its own certificate and key; `named` is how an error names one of the settings."""

    trusted_path: str | None = None
    trusted_pem: str | None = field(default=None, repr=False)
    trusted_password: str | None = field(default=None, repr=False)
    # The certificate and the key may be in one file.
    certificate_path: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_path: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    named: str = OF_KAFKA
    # The setting of `trusted_path`, if it has another name.
    trusted_setting: str | None = None

    def setting(self, name: str) -> str:
        if name == TRUST_STORE and self.trusted_setting is not None:
            return self.trusted_setting
        return self.named.format(name)


NO_STORES: Final = KeyStores()


def key_stores(settings: Mapping[str, str], named: str = OF_KAFKA) -> KeyStores:
    """Return what the settings name; the content of a file decides its format when it is read."""
    for name in ("ssl.truststore", "ssl.keystore", "ssl.certificate", "ssl.key"):
        if "-----BEGIN" in settings.get(f"{name}.location", ""):
            # Text that is not a file name may be a key, so it is not shown.
            raise OptionError(
                f"{named.format(f'{name}.location')} contains PEM text instead of a file name",
                remedy="Set PEM text with kafka.ssl.truststore.certificates, "
                "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key",
            )
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if settings.get(name, "PEM").strip().upper() not in STORE_TYPES:
            raise OptionError(
                f"{named.format(name)} is {settings[name]!r}",
                remedy=f"Use one of {', '.join(STORE_TYPES)}; convert other stores with `keytool -importkeystore "
                "... -deststoretype PKCS12`",
            )
    keystore = settings.get("ssl.keystore.location")
    certificate = settings.get("ssl.certificate.location", keystore)
    return KeyStores(
        trusted_path=settings.get(TRUST_STORE),
        trusted_pem=settings.get("ssl.truststore.certificates"),
        trusted_password=settings.get("ssl.truststore.password"),
        certificate_path=certificate,
        certificate_pem=settings.get("ssl.keystore.certificate.chain"),
        key_path=settings.get("ssl.key.location", certificate),
        key_pem=settings.get("ssl.keystore.key"),
        keystore_password=settings.get("ssl.keystore.password"),
        key_password=settings.get("ssl.key.password"),
        named=named,
    )
