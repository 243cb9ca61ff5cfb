"""A second listener of a real Kafka with TLS and a login, and the client's side of it.

The plain listener stays for the brokers themselves and for the test's own questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MODULES = "org.apache.kafka.common.security"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure:
    """Certificates as PEM files, and who may log in."""

    certificate: Path
    key: Path
    """Unencrypted, PKCS 8: what Java reads."""
    ca: Path
    """What clients trust."""
    users: Mapping[str, str]
    """Name to password, for PLAIN and both kinds of SCRAM. OAUTHBEARER takes any unsigned token."""

    def properties(self, folder: Path) -> dict[str, str]:
        """The broker's settings for the listener SECURE. Java wants key and certificate in one file, written here."""
        store = folder / "broker-store.pem"
        store.touch(mode=0o600)
        store.write_text(f"{self.key.read_text().strip()}\n{self.certificate.read_text().strip()}\n")
        plain_users = " ".join(f'user_{name}="{password}"' for name, password in sorted(self.users.items()))
        listener = "listener.name.secure"
        scram = {
            f"{listener}.{name.lower()}.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;"
            for name in SCRAM
        }
        return scram | {
            "sasl.enabled.mechanisms": ",".join((*SCRAM, "PLAIN", "OAUTHBEARER")),
            f"{listener}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {plain_users};",
            f"{listener}.oauthbearer.sasl.jaas.config": (
                f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(store),
        }

    def format_arguments(self) -> list[str]:
        """SCRAM users are written into the storage when it is formatted."""
        return [
            word
            for name, password in sorted(self.users.items())
            for mechanism in SCRAM
            for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def client_settings(self, user: str, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """What a client says under confluent-kafka's names to log in as `user`."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
        }
