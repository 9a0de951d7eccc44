"""Source names, holders, the status file and the report: values, without a disk."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.digests import hash_bytes
from stager.config import StageConfig, choose_holder, clean_holder, parse_source
from stager.plan import FileRecord, ObservedFile
from stager.report import MAX_TERMINATION_BYTES, StageReport, render_failure, render_last_words
from stager.status import DatasetStatus


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/mnt/data", "/mnt/data"),
        ("/mnt/data/", "/mnt/data"),
        ("/mnt/data/manifest.json", "/mnt/data"),
        ("file:///mnt/data", "/mnt/data"),
        ("file://localhost/mnt/data", "/mnt/data"),
        ("file:///mnt/with%20space/%C3%A4", "/mnt/with space/ä"),
        ("/mnt/100%20", "/mnt/100%20"),
        ("data", os.path.join(os.getcwd(), "data")),
        ("manifest.json", os.getcwd()),
        ("s3://bucket/x/", "s3://bucket/x"),
        ("S3://bucket/x/manifest.json", "s3://bucket/x"),
        ("s3://bucket/manifest.json", "s3://bucket"),
        ("s3://bucket/what?#%20", "s3://bucket/what?#%20"),
        ("https://host:8443/x", "https://host:8443/x"),
        ("sftp://user@host/x", "sftp://user@host/x"),
    ],
)
def test_a_source_is_a_path_or_a_url(text, path):
    assert parse_source(text) == path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3:///x", "bucket"),
        ("https://", "host"),
        ("https://host/x?sig=1", "directory"),
        ("s3://key:secret@bucket/x", "password in the URL of bucket"),
        ("s3://bucket/a\nb", "control"),
        ("file://server/x", "three slashes"),
        ("file:///x?y", "%3F"),
        ("", "empty"),
        ("/a\0b", "NUL"),
    ],
)
def test_another_source_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=said):
        parse_source(text)


def test_the_holder_is_the_pod_then_the_slurm_job_then_the_user():
    assert choose_holder({"POD_UID": "ab-1", "SLURM_JOB_ID": "7"}, "node", 5) == "pod-ab-1"
    assert choose_holder({"SLURM_JOB_ID": "7"}, "node", 5) == "slurm-7"
    assert choose_holder({}, "node", 5) == "node-uid-5"


@given(st.text())
def test_every_holder_name_can_be_a_lease_file(name):
    from shards.cache import CacheLayout

    CacheLayout("/c").lease_path("blake3:" + "0" * 64, clean_holder(name) + ".999")


@pytest.mark.parametrize("options", [{"connections": 0}, {"lease_ttl_seconds": -1.0}])
def test_a_config_that_makes_no_sense_is_refused(options):
    with pytest.raises(ValueError, match=r"must be|must lie"):
        StageConfig(source="/s", cache_dir="/c", holder="h", **options)


records = st.dictionaries(
    st.text(min_size=1),
    st.builds(
        FileRecord,
        st.binary().map(hash_bytes),
        st.builds(ObservedFile, st.integers(0, 2**62), st.integers(-(2**62), 2**62), st.integers(0, 2**63)),
    ),
    max_size=4,
)


@given(records, st.text(), st.integers(0, 2**60))
def test_a_status_comes_back_from_its_json(files, source, size_bytes):
    status = DatasetStatus(
        source=source, num_shards=3, size_bytes=size_bytes, num_samples_by_split={"a": 1}, records=files
    )
    assert DatasetStatus.from_json(status.to_json()) == status


@given(st.binary())
def test_a_damaged_status_is_no_error(data):
    assert DatasetStatus.from_json(data) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_what_is_not_understood_in_a_status_is_left_out(value):
    for document in (value, {"version": 1, "files": value}, {"version": 1, "files": {"x": value}, "source": value}):
        status = DatasetStatus.from_json(json.dumps(document).encode())
        assert status is None or not status.records


def report_of(**values):
    defaults = {
        "path": "/cache/datasets/ab",
        "dataset_id": "blake3:ab",
        "source": "/mnt/x",
        "num_shards": 2,
        "num_samples": 10,
        "total_bytes": 2_000_000,
        "kept_bytes": 0,
        "resumed_bytes": 0,
        "fetched_bytes": 2_000_000,
        "peer_bytes": 0,
        "retries": 0,
        "seconds": 2.0,
    }
    return StageReport(**{**defaults, **values})


def test_a_report_says_what_was_moved_and_how_fast():
    text = report_of(resumed_bytes=0).to_text()
    assert text.startswith("staged: 2 shards, 10 samples, 1.9 MiB\n")
    assert "1.9 MiB fetched; 2.00 s, 1 MB/s" in text
    assert text.endswith("path:       /cache/datasets/ab")
    assert json.loads(report_of().to_json())["megabytes_per_second"] == 1.0


def test_a_report_says_what_other_datasets_gave_and_lost():
    report = report_of(fetched_bytes=0, linked_bytes=2_000_000, evicted_bytes=3_000_000)
    assert report.result == "Staged"
    assert "  1.9 MiB linked; 2.00 s\n  evicted:    2.9 MiB\n" in report.to_text()
    words = json.loads(render_last_words(report))
    assert (words["fetched_bytes"], words["cached_bytes"], words["evicted_bytes"]) == (0, 2_000_000, 3_000_000)


def test_a_report_of_nothing_to_do_says_so():
    report = report_of(kept_bytes=2_000_000, fetched_bytes=0)
    assert report.result == "AlreadyStaged"
    assert "already staged" in report.to_text()


@given(st.text(max_size=3000))
def test_last_words_are_one_short_line_of_json(text):
    for line in (render_failure(65, "DigestMismatchError", text), render_last_words(report_of(path=text))):
        assert len(line) <= MAX_TERMINATION_BYTES
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert json.loads(line)["code"] in {0, 65}
