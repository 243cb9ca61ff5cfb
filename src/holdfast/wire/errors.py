"""What can be wrong with bytes from outside: one exception for all of it, so that one `except` is enough."""

from __future__ import annotations

from holdfast.model import HoldfastError


class MalformedFrame(HoldfastError):
    """Bytes that are not a Kafka message. `what` says which field, and where."""

    def __init__(self, what: str) -> None:
        super().__init__(
            "MALFORMED_FRAME",
            f"{what.rstrip('.')}.",
            "Its sender does not speak Kafka's protocol, or the bytes were damaged.",
        )


class UnsupportedVersion(HoldfastError):
    """A request with a valid header, for an API or a version that we don't serve.

    It carries the header's fields: ApiVersions must still be answered, in version 0 (KIP-511). Other APIs are refused.
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
