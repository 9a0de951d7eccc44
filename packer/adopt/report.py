"""What ``pack adopt`` says at its end; pure."""

from packer.adopt.run import Adopted
from packer.inspect import summary_as_text
from shards.errors import printable
from shards.strict_json import JsonValue


def adopted_as_json(done: Adopted) -> dict[str, JsonValue]:
    """For ``--json``."""
    manifest = done.manifest
    return {
        "destination": printable(done.location),
        "dataset_id": manifest.dataset_id,
        "format": manifest.shard_format,
        "num_samples": manifest.num_samples,
        "num_shards": manifest.num_shards,
        "size_bytes": manifest.size_bytes,
        "splits": {
            split.name: {"num_samples": split.num_samples, "num_shards": len(split.shards)} for split in manifest.splits
        },
        "remarks": list(done.remarks),
    }


def adopted_as_text(done: Adopted) -> str:
    """For people."""
    where = printable(done.location)
    return "\n".join(
        [
            *(f"remark: {remark}" for remark in done.remarks),
            f"adopted the shards, manifest and indexes are in {where}",
            summary_as_text(done.manifest),
            f"next: load inspect {where}   or: stage run {where} --cache-dir DIR",
        ]
    )
