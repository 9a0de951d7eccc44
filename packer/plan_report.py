"""All that is said about a plan before anything is written, as one value, and as JSON; pure."""

from dataclasses import dataclass

from packer.advise import Advice, advise
from packer.measured import ReadingTime, Room
from packer.propose import Proposal
from packer.report import skips_as_json
from packer.survey import PlanFacts
from shards.errors import printable
from shards.strict_json import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """All that is said about a plan before anything is written."""

    source: str
    facts: PlanFacts
    required: tuple[str, ...] = ()
    room: Room | None = None
    """Of the destination, if one was given."""
    reading: ReadingTime | None = None
    proposal: Proposal | None = None

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to do."""
        return advise(self.facts, required=self.required, room=self.room, proposal=self.proposal)

    def as_json(self) -> dict[str, JsonValue]:
        """For ``--json``: what depends on the source alone, and under ``measured`` what depends on the moment."""
        facts, plan = self.facts, self.facts.plan
        classes, mixing = plan.content.classes, facts.mixing
        return {
            "format": plan.options.format_name,
            "transform": None if plan.options.transform is None else printable(plan.options.transform.text),
            "num_files": facts.num_files,
            "source_bytes": plan.source_bytes,
            "num_samples": plan.num_samples,
            "num_shards": len(plan.shards),
            "size_bytes": plan.size_bytes,
            "overhead_bytes": facts.overhead_bytes,
            "overhead_share": round(facts.overhead_share, 6),
            "space_bytes": facts.space_bytes,
            "estimated_size_bytes": dict(facts.other_sizes),
            "num_opens_saved": facts.num_opens_saved,
            "extensions": {
                printable(found.name): {
                    "num_present": found.num_present,
                    "num_missing": found.num_missing,
                    "size_bytes": found.size_bytes,
                    "largest_bytes": found.largest_bytes,
                }
                for found in facts.extensions
            },
            "file_sizes": [
                {
                    "from_bytes": found.from_bytes,
                    "below_bytes": found.below_bytes,
                    "num_files": found.num_files,
                    "size_bytes": found.size_bytes,
                }
                for found in facts.size_bins
            ],
            "sample_kinds": [
                {
                    "extensions": [printable(name) for name in kind.extensions],
                    "num_samples": kind.num_samples,
                    "missing": [printable(name) for name in kind.missing],
                    "keys": [printable(key) for key in kind.keys],
                }
                for kind in facts.kinds
            ],
            "num_incomplete": facts.num_incomplete,
            "splits": {
                split.name: {
                    "num_samples": split.num_samples,
                    "num_shards": split.num_shards,
                    "size_bytes": split.size_bytes,
                }
                for split in facts.splits
            },
            "classes": list(classes.names) if classes is not None else [],
            "mixing": None
            if mixing is None
            else {
                "num_groups": mixing.num_groups,
                "grouped_by": mixing.grouped_by,
                "window_samples": mixing.window_samples,
                "quality": round(mixing.quality, 6),
                "unshuffled_quality": round(mixing.unshuffled_quality, 6),
            },
            "shards": [
                {
                    "name": shard.name,
                    "split": shard.split,
                    "num_samples": shard.num_samples,
                    "size_bytes": shard.size_bytes,
                }
                for shard in plan.shards
            ],
            "skipped": skips_as_json(facts.skips),
            "proposal": self._proposal_as_json(),
            "measured": self._measured_as_json(),
            "advice": [{"topic": advice.topic.value, "text": advice.text} for advice in self.advice],
        }

    def _proposal_as_json(self) -> JsonValue:
        proposal = self.proposal
        if proposal is None:
            return None
        return {
            "num_nodes": proposal.cluster.num_nodes,
            "num_gpus": proposal.cluster.num_gpus,
            "num_workers": proposal.cluster.num_workers,
            "split": proposal.split,
            "num_shards": proposal.num_shards,
            "shard_size_bytes": proposal.shard_size_bytes,
            "is_even": proposal.is_even,
        }

    def _measured_as_json(self) -> JsonValue:
        reading = self.reading
        return {
            "free_bytes": None if self.room is None else self.room.free_bytes,
            "reading": None
            if reading is None
            else {
                "num_files": reading.num_files,
                "seconds_a_file": reading.seconds_a_file,
                "one_by_one_seconds": reading.one_by_one_seconds,
                "num_readers": reading.num_readers,
                "best_seconds": reading.best_seconds,
            },
        }
