"""The rules of room, on values: what counts, what may go, in which order, and no more than is needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.limits import HEADROOM_BYTES, Floor, Retain, SpaceLimits
from stager.space import (
    CacheUsage,
    DatasetUsage,
    DiskFile,
    DiskSpace,
    Need,
    QuarantineUsage,
    Reason,
    choose_for_cleaning,
    choose_for_room,
    evictable_bytes,
    footprint_bytes,
    free_for_cache,
    is_evictable,
    lacking,
)

MIB = 1024 * 1024


def dataset(name, *files, **facts):
    return DatasetUsage(dataset_id=name, files=tuple(files), **{"idle_seconds": 1000.0, **facts})


def file(inode, num_bytes, num_links=1):
    return DiskFile(inode, num_bytes, num_links)


def usage(*datasets, free_bytes=1000 * MIB, size_bytes=2000 * MIB, **facts):
    disk = DiskSpace(size_bytes=size_bytes, free_bytes=free_bytes, num_inodes=0, free_inodes=0)
    return CacheUsage(datasets=datasets, **{"disk": disk, **facts})


def test_a_file_with_several_names_counts_once_and_frees_its_room_with_the_last():
    shared = file(1, 10 * MIB, 2)
    both = usage(dataset("a", shared, used_at=1.0), dataset("b", shared, file(2, MIB), used_at=2.0))
    assert both.used_bytes == 11 * MIB
    limits = SpaceLimits(quota_bytes=12 * MIB)
    victims = choose_for_room(both, limits, Need(10 * MIB))
    assert [(victim.name, victim.freed_bytes) for victim in victims] == [("a", 0), ("b", 11 * MIB)]


def test_a_name_outside_of_the_cache_keeps_the_room():
    held_outside = usage(dataset("a", file(1, 10 * MIB, 2)))
    assert evictable_bytes(held_outside, SpaceLimits()) == 0


def test_what_running_stagers_may_still_write_is_not_given_twice():
    promised = usage(dataset("a", file(1, MIB), promised_bytes=5 * MIB, holders=("x",)), reserved_bytes=2 * MIB)
    free = free_for_cache(promised, SpaceLimits(quota_bytes=20 * MIB))
    assert free.num_bytes == 20 * MIB - HEADROOM_BYTES - MIB - 5 * MIB - 2 * MIB
    assert free_for_cache(promised, SpaceLimits()).num_bytes == 1000 * MIB - 7 * MIB


def test_the_order_is_damaged_then_to_be_deleted_then_least_recently_used():
    full = usage(
        dataset("new", file(1, 10 * MIB), used_at=30.0),
        dataset("old", file(2, 10 * MIB), used_at=10.0),
        dataset("done", file(3, 10 * MIB), used_at=40.0, retain=Retain.DELETE),
        quarantine=(QuarantineUsage(token="q", files=(file(4, 10 * MIB),), is_evictable=True),),
    )
    limits = SpaceLimits(quota_bytes=41 * MIB)
    victims = choose_for_room(full, limits, Need(40 * MIB))
    assert [victim.name for victim in victims] == ["q", "done", "old", "new"]
    assert [victim.reason for victim in victims] == [Reason.DAMAGED, Reason.DELETE, Reason.ROOM, Reason.ROOM]
    assert [victim.name for victim in choose_for_room(full, limits, Need(15 * MIB))] == ["q", "done"]


@pytest.mark.parametrize(
    "facts",
    [{"holders": ("pod-1",)}, {"is_self_made": False}, {"idle_seconds": 599.0}],
)
def test_what_is_protected_foreign_or_young_never_goes(facts):
    kept = usage(dataset("a", file(1, 10 * MIB), retain=Retain.DELETE, **facts))
    limits = SpaceLimits(quota_bytes=11 * MIB)
    assert choose_for_room(kept, limits, Need(5 * MIB)) == ()
    assert choose_for_cleaning(kept, limits) == ()


def test_a_released_dataset_that_is_to_be_deleted_goes_at_once():
    young = dataset("a", file(1, MIB), idle_seconds=0.0, retain=Retain.DELETE, is_released=True)
    assert [victim.reason for victim in choose_for_cleaning(usage(young), SpaceLimits())] == [Reason.DELETE]
    held = dataset("a", file(1, MIB), idle_seconds=0.0, retain=Retain.DELETE, is_released=True, holders=("a reader",))
    assert choose_for_cleaning(usage(held), SpaceLimits()) == ()


def test_what_never_fits_evicts_nothing():
    small = usage(dataset("a", file(1, 10 * MIB)))
    assert choose_for_room(small, SpaceLimits(quota_bytes=20 * MIB), Need(100 * MIB)) == ()


def test_cleaning_goes_from_above_the_high_watermark_down_to_the_low_one():
    datasets = [dataset(f"d{number}", file(number, 10 * MIB), used_at=float(number)) for number in range(10)]
    limits = SpaceLimits(quota_bytes=105 * MIB, high_watermark=0.9, low_watermark=0.5)
    victims = choose_for_cleaning(usage(*datasets), limits)
    assert [victim.name for victim in victims] == ["d0", "d1", "d2", "d3", "d4"]
    assert {victim.reason for victim in victims} == {Reason.WATERMARK}
    assert choose_for_cleaning(usage(*datasets[:9]), limits) == ()


def test_cleaning_gives_back_what_has_to_stay_free_whoever_filled_the_disk():
    limits = SpaceLimits(min_free_bytes=Floor(share=0.10), high_watermark=1.0, low_watermark=1.0)
    low = usage(dataset("a", file(1, 150 * MIB)), dataset("b", file(2, 150 * MIB)), free_bytes=100 * MIB)
    assert [victim.name for victim in choose_for_cleaning(low, limits)] == ["a"]


def test_inodes_are_looked_at_as_bytes_are():
    disk = DiskSpace(size_bytes=2000 * MIB, free_bytes=1000 * MIB, num_inodes=1000, free_inodes=60)
    some = usage(dataset("a", *[file(number, 4096) for number in range(40)]), disk=disk)
    limits = SpaceLimits(min_free_inodes=Floor(share=0.05))
    assert lacking(some, limits, Need(0, 10)).is_met
    assert lacking(some, limits, Need(0, 30)) == Need(0, 20)
    assert [victim.name for victim in choose_for_room(some, limits, Need(0, 30))] == ["a"]


def test_a_filesystem_that_makes_inodes_as_needed_never_lacks_them():
    assert lacking(usage(), SpaceLimits(min_free_inodes=Floor(share=0.5)), Need(0, 10**9)).is_met


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"quota_bytes": MIB}, "leaves no room"),
        ({"high_watermark": 0.5, "low_watermark": 0.6}, "low <= high"),
        ({"high_watermark": 1.5}, "low <= high"),
        ({"low_watermark": 0.0}, "low <= high"),
        ({"min_free_bytes": Floor(share=1.0)}, "less than 100%"),
        ({"min_free_inodes": Floor(absolute=-1)}, "0 or more"),
        ({"min_idle_seconds": -1.0}, "negative"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, part):
    with pytest.raises(ValueError, match=part):
        SpaceLimits(**options)


def test_a_file_never_takes_more_than_its_footprint():
    assert footprint_bytes(0) == 4096
    assert footprint_bytes(1) == 2 * 4096
    assert footprint_bytes(4096) == 2 * 4096
    assert footprint_bytes(4097, 65536) == 2 * 65536


@st.composite
def usages(draw):
    sizes = draw(st.lists(st.integers(0, 20 * MIB), max_size=12))
    datasets = []
    for number in range(draw(st.integers(0, 6))):
        inodes = draw(st.lists(st.integers(0, max(len(sizes) - 1, 0)), unique=True)) if sizes else []
        datasets.append(
            dataset(
                f"d{number}",
                *[file(inode, sizes[inode]) for inode in inodes],
                used_at=draw(st.floats(0, 100)),
                idle_seconds=draw(st.sampled_from([0.0, 1000.0])),
                holders=draw(st.sampled_from([(), (), ("x",)])),
                is_self_made=draw(st.booleans()),
                retain=draw(st.sampled_from(list(Retain))),
                is_released=draw(st.booleans()),
                promised_bytes=draw(st.sampled_from([0, MIB])),
            )
        )
    names = [item.inode for entry in datasets for item in entry.files]
    counted = tuple(
        dataset(
            entry.dataset_id,
            *[DiskFile(item.inode, item.disk_bytes, names.count(item.inode)) for item in entry.files],
            **{
                name: getattr(entry, name)
                for name in (
                    "used_at",
                    "idle_seconds",
                    "holders",
                    "is_self_made",
                    "retain",
                    "is_released",
                    "promised_bytes",
                )
            },
        )
        for entry in datasets
    )
    return usage(*counted, free_bytes=draw(st.integers(0, 100 * MIB)))


def without(before, victims):
    gone = {victim.name for victim in victims}
    kept = tuple(entry for entry in before.datasets if entry.dataset_id not in gone)
    left = [item.inode for entry in kept for item in entry.files]
    freed = before.used_bytes - usage(*kept).used_bytes
    relinked = tuple(
        dataset(
            entry.dataset_id,
            *[DiskFile(item.inode, item.disk_bytes, left.count(item.inode)) for item in entry.files],
            holders=entry.holders,
            idle_seconds=entry.idle_seconds,
            is_self_made=entry.is_self_made,
            promised_bytes=entry.promised_bytes,
        )
        for entry in kept
    )
    return usage(*relinked, free_bytes=before.disk.free_bytes + freed), freed


@given(usages(), st.integers(0, 120 * MIB), st.one_of(st.none(), st.integers(2 * MIB, 200 * MIB)))
def test_eviction_makes_the_room_that_was_asked_for_with_nothing_that_may_not_go_and_nothing_too_much(
    before, needed_bytes, quota_bytes
):
    limits, need = SpaceLimits(quota_bytes=quota_bytes), Need(needed_bytes)
    victims = choose_for_room(before, limits, need)
    allowed = {entry.dataset_id for entry in before.datasets if is_evictable(entry, limits)}
    assert {victim.name for victim in victims} <= allowed
    after, freed = without(before, victims)
    assert freed == sum(victim.freed_bytes for victim in victims)
    if lacking(before, limits, need).is_met:
        assert victims == ()
    elif victims:
        assert lacking(after, limits, need).is_met
        assert not lacking(without(before, victims[:-1])[0], limits, need).is_met
    else:
        assert evictable_bytes(before, limits) < lacking(before, limits, need).num_bytes
