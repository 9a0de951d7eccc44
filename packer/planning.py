"""``pack plan``: gathers facts and measurements about a plan; writes nothing."""

from packer.config import PackConfig
from packer.locations import directory_of, is_url, without_credentials
from packer.plan_report import PlanReport
from packer.preview import Preview
from packer.probe import find_room, measure_reading
from packer.propose import Cluster, propose_shards
from packer.stop import StopFlag
from packer.survey import survey_plan
from shards.cpus import usable_cpus
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
    has_room = config.destination and not is_url(config.destination)
    reader = preview.origin.open_reader()
    try:
        reading = measure_reading(plan, reader, config.jobs or usable_cpus(), stop.check)
    finally:
        reader.close()
    return PlanReport(
        source=without_credentials(config.source),
        facts=facts,
        required=config.checks.required,
        room=find_room(directory_of(config.destination)) if has_room else None,
        reading=reading,
        proposal=None if cluster is None or not plan.num_samples else propose_shards(plan, cluster, sample_size),
    )
