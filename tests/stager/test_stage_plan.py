"""The plan of a stage, without a disk."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shards.digests import hash_bytes
from shards.manifest import Manifest, ShardEntry, SplitEntry
from stager.plan import (
    Action,
    FileRecord,
    Inventory,
    ObservedFile,
    blocks_in_extents,
    blocks_of,
    plan_staging,
)
from stager.verify import Verify


def manifest_of(sizes):
    shards = tuple(
        ShardEntry(
            name=f"t-{number}.tar",
            size_bytes=size,
            digest=hash_bytes(b"shard%d" % number),
            num_samples=1,
            index_name=f"t-{number}.tar.index.arrow",
            index_size_bytes=100 + number,
            index_digest=hash_bytes(b"index%d" % number),
        )
        for number, size in enumerate(sizes)
    )
    split = SplitEntry(name="t", num_samples=len(shards), size_bytes=sum(sizes), shards=shards, extensions={})
    return Manifest(shard_format="tar", block_bytes=1000, splits=(split,))


def promised(manifest):
    """Each file that the manifest names: name → (size, digest)."""
    files = {}
    for _, shard in manifest.shards():
        files[shard.name] = (shard.size_bytes, shard.digest)
        files[shard.index_name] = (shard.index_size_bytes, shard.index_digest)
    return files


STATES = ["absent", "recorded", "unrecorded", "touched", "short", "other digest", "judged good", "judged bad"]


@st.composite
def caches(draw):
    """A manifest, an inventory of a cache, and the state of each file that went into it."""
    manifest = manifest_of(draw(st.lists(st.integers(0, 5000), min_size=1, max_size=6)))
    files, records, partials, verdicts, states = {}, {}, {}, {}, {}
    for number, (name, (size, digest)) in enumerate(promised(manifest).items()):
        state = states[name] = draw(st.sampled_from(STATES))
        if state != "absent":
            found = ObservedFile(size + (state == "short"), 1000 + number, number)
            files[name] = found
            if state in {"recorded", "short", "judged bad"}:
                records[name] = FileRecord(digest, found)
            if state == "touched":
                records[name] = FileRecord(digest, replace(found, mtime_ns=1))
            if state == "other digest":
                records[name] = FileRecord(hash_bytes(b"other"), found)
            if state.startswith("judged"):
                verdicts[name] = state == "judged good"
        if not name.endswith(".arrow") and draw(st.booleans()):
            partials[name] = draw(st.integers(0, size + 4096))
    return manifest, Inventory(files=files, records=records, partial_bytes=partials, verdicts=verdicts), states


@given(caches())
def test_each_file_has_one_step_and_only_what_is_proved_right_is_kept(case):
    manifest, inventory, states = case
    plan = plan_staging(manifest, inventory, Verify.SIZE)
    assert [step.file.name for step in plan.files()] == [
        name for _, shard in manifest.shards() for name in (shard.index_name, shard.name)
    ]
    for step in plan.files():
        state = states[step.file.name]
        assert (step.file.size_bytes, step.file.digest) == promised(manifest)[step.file.name]
        assert (step.action is Action.KEEP) == (state in {"recorded", "judged good"})
        assert (step.action is Action.VERIFY) == (state in {"unrecorded", "touched", "other digest"})
        assert step.is_needed == (state in {"absent", "short", "judged bad"})
        assert (step.bad is not None) == (state in {"short", "judged bad"})


@given(caches())
def test_bytes_are_kept_or_needed_or_to_be_verified_and_never_two_of_them(case):
    manifest, inventory, _ = case
    plan = plan_staging(manifest, inventory, Verify.SIZE)
    total = sum(size for size, _ in promised(manifest).values())
    assert plan.kept_bytes + plan.needed_bytes + sum(file.size_bytes for file in plan.files_to_verify) == total
    assert 0 <= plan.partial_bytes <= plan.needed_bytes
    assert plan.needed_space_bytes >= plan.needed_bytes - plan.partial_bytes


@given(caches(), st.data())
def test_planning_again_with_verdicts_leaves_nothing_to_verify(case, data):
    manifest, inventory, _ = case
    verify = data.draw(st.sampled_from(list(Verify)))
    first = plan_staging(manifest, inventory, verify)
    verdicts = {file.name: data.draw(st.booleans()) for file in first.files_to_verify}
    second = plan_staging(manifest, inventory.with_verdicts(verdicts), verify)
    assert not second.files_to_verify
    assert {file.name for file in second.bad_files} >= {name for name, is_good in verdicts.items() if not is_good}
    kept = {step.file.name for step in second.files() if step.action is Action.KEEP}
    assert kept >= {name for name, is_good in verdicts.items() if is_good}


@given(caches())
def test_full_verification_trusts_no_record(case):
    manifest, inventory, states = case
    plan = plan_staging(manifest, inventory, Verify.FULL)
    for step in plan.files():
        assert (step.action is Action.KEEP) == (states[step.file.name] == "judged good")


def test_an_empty_partial_is_not_resumed():
    manifest = manifest_of([5000, 5000])
    plan = plan_staging(manifest, Inventory(partial_bytes={"t-0.tar": 0, "t-1.tar": 4096}), Verify.SIZE)
    assert [step.data.action for step in plan.steps] == [Action.FETCH, Action.RESUME]


@given(st.integers(0, 10_000), st.integers(1, 1000))
def test_blocks_tile_the_shard(size_bytes, block_bytes):
    blocks = blocks_of(size_bytes, block_bytes)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    position = 0
    for block in blocks:
        assert block.offset == position
        assert 0 < block.size_bytes <= block_bytes
        position += block.size_bytes
    assert position == size_bytes


@given(st.integers(0, 5000), st.integers(1, 700), st.sets(st.integers(0, 60)))
def test_a_block_is_looked_at_exactly_when_no_byte_of_it_is_a_hole(size_bytes, block_bytes, pages):
    # pages of 100 bytes, those in the set are allocated; the last one may run past the end
    extents = [(100 * page, 100 * page + 100) for page in sorted(pages)]
    chosen = blocks_in_extents(blocks_of(size_bytes, block_bytes), extents)
    expected = [
        block
        for block in blocks_of(size_bytes, block_bytes)
        if all(byte // 100 in pages for byte in range(block.offset, block.offset + block.size_bytes))
    ]
    assert list(chosen) == expected
