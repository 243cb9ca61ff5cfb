"""What can be wrong with bytes from a stranger: one exception for all of it, so that one `except` is enough."""

from __future__ import annotations

from holdfast.model import HoldfastError


class MalformedFrame(HoldfastError):
    """Bytes that are not a message of Kafka's. `what` says which field, and where."""

    def __init__(self, what: str) -> None:
        super().__init__(
            "MALFORMED_FRAME",
            f"{what.rstrip('.')}.",
            "Whoever sent it does not speak Kafka's protocol, or the bytes were damaged.",
        )


class UnsupportedVersion(HoldfastError):
    """A request whose header reads well, for an API or a version that we don't serve.

    It carries the header: ApiVersions must be answered all the same, in version 0 (KIP-511); the rest is refused.
    """

    def __init__(self, api_key: int, version: int, correlation_id: int, client_id: str | None) -> None:
        super().__init__(
            "UNSUPPORTED_VERSION",
            f"Version {version} of API {api_key} was asked for.",
            "Ask for ApiVersions first, and use what it offers.",
        )
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
