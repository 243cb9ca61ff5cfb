"""A member's group metadata in librdkafka's format: with it a transactional producer commits in the member's name."""

from __future__ import annotations

import sys

from holdfast.model import Membership


def encoded(group: str, membership: Membership, instance_id: str | None) -> bytes:
    return (
        b"CGMDv2:"
        + membership.generation.to_bytes(4, sys.byteorder, signed=True)
        + group.encode()
        + b"\x00"
        + membership.member_id.encode()
        + b"\x00"
        + (b"\x01" if instance_id is None else b"\x00" + instance_id.encode() + b"\x00")
    )
