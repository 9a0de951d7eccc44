"""The command line: options and their variables, output, last words, what help costs."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from click.testing import CliRunner

from shards.leases import hold_dataset
from stager.cli import cli
from stager.commands import MODULES


def test_every_option_is_also_a_variable(dataset, cache, tmp_path, stage):
    link = tmp_path / "current"
    variables = {
        "STAGE_CACHE_DIR": str(cache),
        "STAGE_CONNECTIONS": "3",
        "STAGE_VERIFY": "full",
        "STAGE_LINK": str(link),
        "STAGE_LEASE_TTL": "30s",
        "STAGE_HOLDER": "job 7",
        "STAGE_JSON": "1",
        "STAGE_QUIET": "1",
        "STORAGE_URI": f"file://{dataset.path}",
    }
    ended = stage("run", env=variables)
    assert ended.code == 0, ended.stderr
    assert ended.report["result"] == "Staged"
    assert ended.stderr == ""
    assert link.resolve() == dataset.staged_in(cache)
    shown = json.loads(stage("status", "--json", env=variables).stdout)
    (only,) = shown["datasets"]
    assert [lease["holder"] for lease in only["leases"]] == ["job_7"]
    assert 0 < only["lease_seconds_left"] <= 30


def test_the_report_is_for_people_and_the_log_is_json_when_nobody_watches(dataset, cache, stage):
    ended = stage("run", dataset.path, "--cache-dir", cache)
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("staged: 5 shards, 5 samples, ")
    assert lines[-1].endswith(str(dataset.staged_in(cache)))
    assert [json.loads(line)["event"].partition(":")[0] for line in ended.stderr.splitlines()] == ["staging", "staging"]


def test_status_of_a_complete_dataset(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache)
    (only,) = json.loads(stage("status", "--cache-dir", cache, "--json").stdout)["datasets"]
    assert only["dataset_id"] == dataset.manifest.dataset_id
    assert only["is_complete"] is True
    assert only["num_shards"] == only["num_shards_staged"] == 5
    assert only["num_samples_by_split"] == {"train": 5}
    assert only["source"] == str(dataset.path)
    assert only["lease"] == "grace"
    text = stage("status", "--cache-dir", cache).stdout
    assert "complete, 5 shards" in text
    assert "grace, 1" in text


def test_status_of_an_incomplete_dataset_counts_shards_and_partials(dataset, cache, stage):
    path = dataset.path / "train-000001.tar"
    path.write_bytes(bytes(path.stat().st_size))
    assert stage("run", dataset.path, "--cache-dir", cache, "--connections", "1").code == 65
    (only,) = json.loads(stage("status", "--cache-dir", cache, "--json").stdout)["datasets"]
    assert only["is_complete"] is False
    assert only["num_shards"] == 5
    assert only["num_shards_staged"] == 1
    assert "1 of 5 shards" in stage("status", "--cache-dir", cache).stdout


def test_status_tells_that_a_reader_holds_a_dataset(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache, "--lease-ttl", "0")
    with hold_dataset(str(dataset.staged_in(cache))):
        assert "lease:   live\n" in stage("status", "--cache-dir", cache).stdout
    assert "lease:   none\n" in stage("status", "--cache-dir", cache).stdout


def test_status_of_an_empty_and_of_no_cache(dataset, cache, stage):
    missing = stage("status", "--cache-dir", cache)
    assert missing.code == 66
    assert "no Shardferry cache" in missing.message
    cache.mkdir()
    (cache / "VERSION").write_text("1\n")
    shown = stage("status", "--cache-dir", cache).stdout
    assert shown.startswith("no dataset is staged here\non disk: ")
    assert json.loads(stage("status", "--cache-dir", cache, "--json").stdout)["datasets"] == []


def test_status_explains_every_byte(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache, "--holder", "job-7")
    (cache / "leases" / "mine").write_text("x" * 10_000)
    told = json.loads(stage("status", "--cache-dir", cache, "--json").stdout)
    room = told["cache"]
    du = subprocess.run(["du", "-s", "-B1", str(cache)], check=True, capture_output=True, text=True)
    assert room["used_bytes"] == int(du.stdout.split()[0])
    assert room["used_bytes"] == room["dataset_bytes"] + room["quarantine_bytes"] + room["other_bytes"]
    (facts,) = told["datasets"]
    assert facts["disk_bytes"] == room["dataset_bytes"]
    assert facts["retain"] == "lru"
    (lease,) = facts["leases"]
    assert lease["holder"] == "job-7"
    assert lease["started_at"].endswith("+00:00")
    shown = stage("status", "--cache-dir", cache).stdout
    assert f"(job-7 since {lease['started_at']})" in shown
    assert "last used 20" in shown


def test_last_words_of_a_good_end(dataset, cache, tmp_path, stage):
    words = tmp_path / "termination-log"
    words.write_text("")
    stage("run", dataset.path, "--cache-dir", cache, "--termination-log", words)
    said = json.loads(words.read_text())
    assert (said["result"], said["code"], said["files"]) == ("Staged", 0, 11)
    assert said["id"] == dataset.manifest.dataset_id
    stage("run", dataset.path, "--cache-dir", cache, env={"STAGE_TERMINATION_LOG": str(words)})
    assert json.loads(words.read_text())["result"] == "AlreadyStaged"


@pytest.mark.parametrize(
    ("source", "code", "kind"), [("nowhere", 66, "RemoteMissingError"), ("file://b/x", 2, "BadParameter")]
)
def test_last_words_of_a_bad_end(cache, tmp_path, stage, source, code, kind):
    words = tmp_path / "termination-log"
    words.write_text("")
    assert stage("run", source, "--cache-dir", cache, "--termination-log", words).code == code
    said = json.loads(words.read_text())
    assert (said["result"], said["code"]) == (kind, code)
    assert said["message"]


def test_last_words_are_not_said_where_nobody_listens(dataset, cache, tmp_path, stage):
    assert stage("run", dataset.path, "--cache-dir", cache, "--termination-log", tmp_path / "none").code == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "x"),
        ("run", "x", "--cache-dir", "c", "--connections", "0"),
        ("run", "x", "--cache-dir", "c", "--verify", "some"),
        ("run", "x", "--cache-dir", "c", "--lease-ttl", "soon"),
        ("run", "x", "--cache-dir", "c", "-q", "-v"),
        ("status",),
        ("nothing",),
    ],
)
def test_wrong_usage_is_exit_2_without_a_traceback(arguments, stage):
    ended = stage(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.stderr
    assert "Usage: stage" in ended.stderr


@pytest.mark.parametrize("arguments", [[], *([name] for name in MODULES)])
def test_help_shows_examples(arguments):
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert result.exit_code == 0
    assert "Examples:\n    stage " in result.output


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["status", "--cache-dir", "/nowhere"]])
def test_help_and_status_load_nothing_heavy(arguments):
    code = (
        "import sys\nfrom stager.cli import cli\n"
        "try:\n    cli(sys.argv[1:], 'stage', standalone_mode=False)\nexcept Exception:\n    pass\n"
        "print([name for name in ('pyarrow', 'numpy', 'fsspec', 'aiofiles', 'tqdm', 'asyncio') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_a_run_that_finds_everything_staged_does_not_load_arrow(dataset, cache, stage):
    stage("run", dataset.path, "--cache-dir", cache)
    code = (
        "import sys\nfrom stager.cli import cli\ncli(sys.argv[1:], 'stage', standalone_mode=False)\n"
        "print([name for name in ('pyarrow', 'numpy', 'fsspec') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "run", str(dataset.path), "--cache-dir", str(cache)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_the_programs_own_terminal_shows_a_bar(dataset, cache):
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "stager", "run", str(dataset.path), "--cache-dir", str(cache)],
        stdout=subprocess.PIPE,
        stderr=secondary,
    )
    os.close(secondary)
    shown = b""
    try:
        while data := os.read(primary, 4096):
            shown += data
    except OSError:
        pass  # the other end is closed
    process.communicate()
    os.close(primary)
    assert process.returncode == 0
    assert b"staging: 100%" in shown
    assert b"{" not in shown
