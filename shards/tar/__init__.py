"""Tar shards: a deterministic encoder, and a strict decoder that does not end early in silence."""

from shards.tar.member import DEFAULT_LIMITS, MemberKind, TarLimits, TarMember
from shards.tar.reader import read_files, read_members

__all__ = ["DEFAULT_LIMITS", "MemberKind", "TarLimits", "TarMember", "read_files", "read_members"]
