"""``pack plan``: gathers facts and measurements about a plan; writes nothing."""

import os

from packer.config import PackConfig
from packer.cpus import usable_cpus
from packer.locations import directory_of, is_url
from packer.plan_report import PlanReport
from packer.preview import Preview
from packer.probe import find_room, measure_reading
from packer.propose import Cluster, propose_shards
from packer.read import SourceReader
from packer.sources.tree import SymlinkPolicy, TreeRoot
from packer.stop import StopFlag
from packer.survey import survey_plan
from shards.formats import FORMATS, find_format


def report_plan(config: PackConfig, preview: Preview, cluster: Cluster | None, stop: StopFlag) -> PlanReport:
    """Say all there is to say about a plan.

    Args:
        config: that was planned.
        preview: of that config.
        cluster: that will read the dataset, if known.
        stop: checked now and then.

    Raises:
        StoppedError: a stop was asked for.
    """
    plan = preview.plan
    others = [(name, found.sample_size) for name, found in FORMATS.items() if name != config.format_name]
    facts = survey_plan(plan, preview.skips, others)
    stop.check()
    sample_size = find_format(config.format_name, where="--format").sample_size
    root = TreeRoot(os.fsencode(os.path.abspath(config.source)), config.symlinks is SymlinkPolicy.FOLLOW)
    has_room = config.destination and not is_url(config.destination)
    return PlanReport(
        source=config.source,
        facts=facts,
        required=config.checks.required,
        room=find_room(directory_of(config.destination)) if has_room else None,
        reading=measure_reading(plan, SourceReader(root), config.jobs or usable_cpus(), stop.check),
        proposal=None if cluster is None else propose_shards(plan, cluster, sample_size),
    )
