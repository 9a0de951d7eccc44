"""Options of ``pack build`` and ``pack plan`` that are read as one value: checks of the source, and time.

They live in the context and not in the parameters of the command's function, which has enough of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from shardferry.console import Duration

if TYPE_CHECKING:
    from packer.checks import Checks
    from packer.engines.names import EngineName
    from packer.propose import Cluster
    from packer.splits import SplitRule
    from packer.transform import TransformSpec

_META = "packer.options"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta.setdefault(_META, {})[parameter.name] = value


def _option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:
    return click.option(*names, expose_value=False, callback=_keep, **settings)


_CHECKS = (
    _option("--require", metavar="EXT,…", help="Extensions that every sample must have, such as jpg,cls."),
    _option(
        "--on-missing",
        type=click.Choice(["error", "skip", "allow"]),
        default="error",
        show_default=True,
        help="Samples that lack a required extension. skip: left out, counted and named.",
    ),
    _option(
        "--many-extensions",
        type=click.Choice(["error", "allow"]),
        default="error",
        show_default=True,
        help="Almost as many extensions as samples, which mostly means that names are split in the wrong place.",
    ),
    _option(
        "--on-unreadable",
        type=click.Choice(["error", "skip"]),
        default="error",
        show_default=True,
        help="Files and directories that this user may not read, and dangling links. skip: left out and counted.",
    ),
    _option(
        "--max-skipped",
        default="1%",
        show_default=True,
        metavar="N|P%",
        help="With --on-unreadable skip: how many may be left out, or which part of all.",
    ),
    _option(
        "--on-unlisted",
        type=click.Choice(["error", "skip"]),
        default="error",
        show_default=True,
        help="With lists for --split: samples that no list names.",
    ),
    _option(
        "--split-seed",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        metavar="SEED",
        help="For shares in --split: which samples go where.",
    ),
    _option(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="Function from a sample, a dictionary as in WebDataset, to a sample, a list of samples, or None to drop "
        "it. Must be deterministic. Shards are cut by the sizes before it.",
    ),
    _option(
        "--time-budget",
        type=Duration(),
        metavar="TIME",
        help="Stop cleanly after this time, such as 30m, with exit status 75; the same command goes on.",
    ),
)

_ENGINE = (
    _option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Who packs. local: processes on this machine; ray: a Ray cluster, all nodes of which see SOURCE and "
        "DESTINATION.",
    ),
    _option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster.  [default: $RAY_ADDRESS, or the cluster of this machine]",
    ),
)

_CLUSTER = (
    _option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes that will train at once."),
    _option("--gpus", type=click.IntRange(1), metavar="G", help="GPUs of each node.  [default: 1]"),
    _option("--workers", type=click.IntRange(1), metavar="W", help="Loader workers of each GPU.  [default: 1]"),
)


def check_options(command: _Command) -> _Command:
    """Give a command the options that :func:`chosen_checks` and its like read."""
    for option in reversed(_CHECKS):
        command = option(command)
    return command


def engine_options(command: _Command) -> _Command:
    """Give a command the options that :func:`chosen_engine` reads."""
    for option in reversed(_ENGINE):
        command = option(command)
    return command


def cluster_options(command: _Command) -> _Command:
    """Give a command the options that :func:`chosen_cluster` reads."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


def chosen_checks() -> "Checks":
    """What the source must fulfil."""
    from packer.checks import (
        Checks,
        ManyExtensions,
        MissingMembers,
        UnlistedSamples,
        UnreadableFiles,
        parse_required,
        parse_skip_budget,
    )

    chosen = _chosen()
    require = chosen["require"]
    return Checks(
        required=() if require is None else _parse(parse_required, require, "--require"),
        missing=MissingMembers(chosen["on_missing"]),
        many_extensions=ManyExtensions(chosen["many_extensions"]),
        unreadable=UnreadableFiles(chosen["on_unreadable"]),
        max_skipped=_parse(parse_skip_budget, chosen["max_skipped"], "--max-skipped"),
        unlisted=UnlistedSamples(chosen["on_unlisted"]),
    )


def chosen_split(text: str) -> "SplitRule":
    """The rule that ``--split`` and ``--split-seed`` give; reads the lists that it names."""
    from packer.split_lists import is_split_list, parse_split_lists
    from packer.splits import parse_split

    if is_split_list(text):
        return _parse(lambda rule: parse_split_lists(rule, _read_text), text, "--split")
    seed = _chosen()["split_seed"]
    return _parse(lambda rule: parse_split(rule, seed=seed), text, "--split")


def chosen_transform() -> "TransformSpec | None":
    """The function that samples go through, if any; imports its module."""
    from packer.transform_code import find_transform

    text = _chosen()["transform"]
    return None if text is None else _parse(find_transform, text, "--transform")


def chosen_engine() -> "tuple[EngineName, str | None]":
    """The engine, and the address of its cluster if one was given.

    Raises:
        UnsupportedEnvironmentError, EngineError: what the engine needs is not there.
    """
    from packer.engines.names import EngineName

    engine, address = EngineName(_chosen()["engine"]), _chosen()["ray_address"]
    if engine is EngineName.RAY:
        from packer.engines.ray import require_cluster

        require_cluster(address)
    elif click.get_current_context().get_parameter_source("ray_address") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--ray-address goes with --engine ray")
    return engine, address


def chosen_time_budget() -> float | None:
    """Seconds, or None for no limit."""
    budget: float | None = _chosen()["time_budget"]
    return budget


def chosen_cluster() -> "Cluster | None":
    """The cluster that was asked about, if any."""
    from packer.propose import Cluster

    chosen = _chosen()
    numbers = [chosen.get(name) for name in ("nodes", "gpus", "workers")]
    if numbers == [None, None, None]:
        return None
    num_nodes, num_gpus, num_workers = (number or 1 for number in numbers)
    return Cluster(num_nodes=num_nodes, num_gpus=num_gpus, num_workers=num_workers)


def _chosen() -> dict[str, Any]:
    found: dict[str, Any] = click.get_current_context().meta[_META]
    return found


_Value = TypeVar("_Value")


def _parse(parse: Callable[[str], _Value], text: str, option: str) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _read_text(path: str) -> str:
    from shards.errors import printable

    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"cannot read the list {printable(path)}: {error.strerror}") from error
