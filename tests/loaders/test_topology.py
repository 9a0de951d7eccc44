"""Rank and world size: from where they are said, and never from two places that disagree."""

import pytest

from loaders.order import Topology
from loaders.topology import Claim, settle_topology
from shards.errors import LoadError


def settle(environ=None, rank=None, world_size=None, framework=None):
    claim = (
        None if framework is None else Claim("torch.distributed", Topology(rank=framework[0], world_size=framework[1]))
    )
    found = settle_topology(rank=rank, world_size=world_size, environ=environ or {}, framework=claim)
    return found.rank, found.world_size


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "3"}, (0, 1)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (1, 2)),
    ],
)
def test_launchers_say_it_in_the_environment(environ, expected):
    assert settle(environ) == expected


def test_arguments_and_framework_stand_when_they_agree_or_are_alone():
    assert settle(rank=1, world_size=4) == (1, 4)
    assert settle(framework=(1, 4)) == (1, 4)
    assert settle({"RANK": "1", "WORLD_SIZE": "4"}, 1, 4, (1, 4)) == (1, 4)


@pytest.mark.parametrize(
    ("options", "both"),
    [
        (
            {"rank": 0, "world_size": 2, "framework": (0, 4)},
            ("the arguments say rank 0 of 2", "torch.distributed rank 0 of 4"),
        ),
        (
            {"rank": 0, "world_size": 1, "environ": {"RANK": "1", "WORLD_SIZE": "2"}},
            ("the arguments", "RANK and WORLD_SIZE"),
        ),
        ({"framework": (0, 2), "environ": {"RANK": "1", "WORLD_SIZE": "2"}}, ("torch.distributed says", "torchrun")),
    ],
)
def test_contradictions_are_refused_and_both_are_named(options, both):
    with pytest.raises(LoadError) as raised:
        settle(**options)
    assert all(text in str(raised.value) for text in (*both, "process_group", "replicate=True"))


@pytest.mark.parametrize("options", [{"rank": 0}, {"world_size": 2}, {"rank": 2, "world_size": 2}])
def test_impossible_arguments_are_refused(options):
    with pytest.raises(ValueError, match="rank"):
        settle(**options)


@pytest.mark.parametrize("environ", [{"RANK": "one", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_nonsense_in_the_environment_is_named(environ):
    with pytest.raises(LoadError, match=f"RANK={environ['RANK']} and WORLD_SIZE=2 in the environment"):
        settle(environ)
