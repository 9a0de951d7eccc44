"""stage doctor: each thing that can be wrong is found, named, and followed by a next step; no secret is shown."""

import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from stager.doctor.findings import Verdict, exit_code, failed, good, render_text, warning
from stager.doctor.mounts import mount_of, parse_mounts
from stager.prepare import warn_of_network

HANGING_STAGE = str(Path(__file__).parent.parent / "hanging_stage.py")
MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /mnt/nfs\040share ro,relatime - nfs4 server:/export rw,soft
31 22 8:17 /pods/x/volumes/kubernetes.io~empty-dir/cache /cache rw - xfs /dev/sdb1 rw
32 31 0:31 / /cache/fast rw - tmpfs tmpfs rw
garbage
"""


@pytest.fixture
def doctor(stage):
    """Run ``stage doctor --json``; give exit code, findings by check, and all that was said."""

    def run(*args, **options):
        ended = stage("doctor", *args, "--json", **options)
        said = json.loads(ended.stdout)
        assert said["code"] == ended.code
        assert "Traceback" not in ended.stderr
        return ended.code, {finding["check"]: finding for finding in said["findings"]}, ended.stdout + ended.stderr

    return run


def verdicts(findings, verdict):
    return {name for name, finding in findings.items() if finding["verdict"] == verdict}


def test_a_directory_and_a_cache_that_is_not_there_yet(dataset, cache, doctor):
    code, findings, _ = doctor(dataset.path, "--cache-dir", cache)
    assert code == 0
    assert verdicts(findings, "fail") == set()
    assert {"mount", "manifest", "head", "range", "if-match", "owner", "filesystem", "space", "inodes"} <= set(findings)
    assert "5 shards" in findings["manifest"]["facts"]
    assert findings["write"]["facts"].startswith(f"{cache} will be made in")
    assert not cache.exists()


def test_a_staged_dataset_needs_nothing_more_and_nothing_is_left_behind(dataset, cache, doctor, stage):
    stage("run", dataset.path, "--cache-dir", cache)
    before = sorted(cache.rglob("*"))
    code, findings, _ = doctor(dataset.path, "--cache-dir", cache)
    assert code == 0
    assert findings["locks"]["verdict"] == findings["write"]["verdict"] == "ok"
    assert findings["space"]["facts"].endswith("needs 0 B more")
    assert sorted(cache.rglob("*")) == before


def test_without_a_source_the_node_is_looked_at(cache, doctor):
    code, findings, _ = doctor("--cache-dir", cache)
    assert code == 0
    assert "manifest" not in findings
    assert {"owner", "space", "memory", "open files"} <= set(findings)


def test_damage_at_the_source_has_the_code_of_staging(dataset, cache, doctor, tmp_path):
    code, findings, _ = doctor(tmp_path / "nowhere", "--cache-dir", cache)
    assert (code, findings["manifest"]["verdict"]) == (66, "fail")
    biggest = dataset.path / "train-000000.tar"
    biggest.write_bytes(biggest.read_bytes()[:-1])
    code, findings, _ = doctor(dataset.path, "--cache-dir", cache)
    assert (code, findings["head"]["verdict"]) == (65, "fail")


def test_a_cache_of_a_newer_release_and_one_in_the_way(dataset, cache, doctor, tmp_path):
    cache.mkdir()
    (cache / "VERSION").write_text("99\n")
    code, findings, _ = doctor(dataset.path, "--cache-dir", cache)
    assert (code, findings["layout"]["verdict"]) == (78, "fail")
    (tmp_path / "file").write_text("")
    code, findings, _ = doctor(dataset.path, "--cache-dir", tmp_path / "file" / "cache")
    assert (code, findings["write"]["verdict"]) == (73, "fail")


def test_a_disk_that_is_too_small(publish, tmp_path, doctor):
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        big = publish(tmp_path / "big", [2 * 1024 * 1024])
        code, findings, _ = doctor(big.path, "--cache-dir", disk / "cache")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert (code, findings["space"]["verdict"]) == (79, "fail")
    assert "--window" in findings["space"]["advice"]
    assert findings["filesystem"]["verdict"] == "warn"


def test_s3_with_all_that_belongs_to_it(dataset, cache, doctor, bucket, moto):
    client, name = bucket
    for path in dataset.path.iterdir():
        client.put_object(Bucket=name, Key=f"ds/{path.name}", Body=path.read_bytes())
    secrets = {"AWS_ACCESS_KEY_ID": "AKIASECRETID", "AWS_SECRET_ACCESS_KEY": "TOPSECRET", "AWS_SESSION_TOKEN": "HUSH"}
    code, findings, said = doctor(f"s3://{name}/ds", "--endpoint-url", moto, "--cache-dir", cache, env=secrets)
    assert code == 0, said
    expected = {"endpoint", "dns", "tcp", "http", "clock", "credentials", "manifest", "head", "range", "if-match"}
    assert expected <= verdicts(findings, "ok")
    assert "in the path" in findings["endpoint"]["facts"]
    assert "env" in findings["credentials"]["facts"]
    assert not [secret for secret in secrets.values() if secret in said]


def test_s3_without_bucket_without_credentials_and_without_a_server(cache, doctor, bucket, moto, tmp_path):
    code, findings, _ = doctor("s3://no-such-bucket/ds", "--endpoint-url", moto, "--cache-dir", cache)
    assert (code, findings["manifest"]["verdict"]) == (66, "fail")
    nothing = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }
    code, findings, _ = doctor(f"s3://{bucket[1]}/ds", "--endpoint-url", moto, "--cache-dir", cache, env=nothing)
    assert (code, findings["credentials"]["verdict"]) == (77, "fail")
    code, findings, _ = doctor(f"s3://{bucket[1]}/ds", "--endpoint-url", "http://127.0.0.1:1", "--cache-dir", cache)
    assert (code, findings["tcp"]["verdict"]) == (69, "fail")
    code, findings, _ = doctor(f"s3://{bucket[1]}/ds", "--endpoint-url", "http://no-such.invalid", "--cache-dir", cache)
    assert (code, findings["dns"]["verdict"]) == (69, "fail")


@pytest.fixture
def tls_server(tmp_path):
    """An HTTPS server with an authority of its own, whose clock can be wrong."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    subject = "/O=Site CA/CN=localhost"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", subject]
    subprocess.run(
        [*command, "-addext", names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )

    class Handler(http.server.SimpleHTTPRequestHandler):
        skew_seconds = 0.0

        def date_time_string(self, timestamp=None):
            return formatdate(time.time() + self.skew_seconds, usegmt=True)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_address[1]}", certificate, Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_authority_of_ones_own(cache, doctor, tls_server):
    url, certificate, _ = tls_server
    code, findings, _ = doctor(f"{url}/ds", "--cache-dir", cache)
    assert (code, findings["tls"]["verdict"]) == (69, "fail")
    assert "--ca-bundle" in findings["tls"]["advice"]
    _, findings, _ = doctor(f"{url}/ds", "--cache-dir", cache, "--ca-bundle", certificate)
    # the certificate ends in three days
    assert findings["tls"]["verdict"] == "warn"
    assert "Site CA" in findings["tls"]["facts"]
    assert findings["clock"]["verdict"] == "ok"


def test_http_where_tls_is_expected_and_the_other_way_round(cache, doctor, tls_server, moto):
    url, _, _ = tls_server
    _, findings, _ = doctor(f"{url.replace('https', 'http')}/ds", "--cache-dir", cache)
    assert findings["http"]["verdict"] == "fail"
    _, findings, _ = doctor(f"{moto.replace('http:', 'https:')}/ds", "--cache-dir", cache)
    assert findings["tls"]["verdict"] == "fail"


def test_a_clock_that_is_off(cache, doctor, tls_server, aws):
    url, certificate, handler = tls_server
    handler.skew_seconds = 3630.0
    code, findings, _ = doctor("s3://b/ds", "--endpoint-url", url, "--cache-dir", cache, "--ca-bundle", certificate)
    assert (code, findings["clock"]["verdict"]) == (77, "fail")
    assert "1 h 00 min behind" in findings["clock"]["facts"]
    _, findings, _ = doctor(f"{url}/ds", "--cache-dir", cache, "--ca-bundle", certificate)
    assert findings["clock"]["verdict"] == "warn"


def test_a_source_that_hangs_is_left_behind(dataset, cache):
    program = (
        "import sys, stager.doctor.patience as patience\n"
        "patience.collect.__defaults__ = (3.0,)\n"
        f"sys.argv[1:1] = ['manifest.json']\nexec(open({HANGING_STAGE!r}).read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", str(dataset.path), "--cache-dir", str(cache)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 69, done.stderr
    assert "no answer within 3 s" in done.stdout


def test_mounts_are_found_by_the_longest_path():
    mounts = parse_mounts(MOUNTINFO)
    assert mount_of("/mnt/nfs share/a", mounts).filesystem == "nfs4"
    assert mount_of("/mnt/nfs share", mounts).options == {"ro", "relatime"}
    assert mount_of("/mnt/nfs", mounts).filesystem == "ext4"
    assert mount_of("/cache/x", mounts).root.endswith("empty-dir/cache")
    assert mount_of("/cache/fast", mounts).filesystem == "tmpfs"
    assert mount_of("/x", []) is None


def test_a_cache_on_a_network_filesystem_is_warned_of(tmp_path, caplog):
    line = f"30 29 0:40 / {tmp_path} rw - {{}} storage:/export rw"
    for kind, num_warnings in [("ext4", 0), ("fuseblk", 0), ("nfs4", 1), ("fuse.sshfs", 2), ("ceph", 3)]:
        warn_of_network(str(tmp_path / "cache"), parse_mounts(line.format(kind)))
        assert len(caplog.records) == num_warnings, kind
    assert caplog.records[-1].filesystem == "ceph"


def test_the_first_failure_gives_the_exit_code_and_text_is_one_line_a_fact():
    findings = [good("a", "x\ny"), warning("bb", "w", "do this"), failed("c", "f", "do that", 66)]
    findings.append(failed("d", "", "", 77))
    assert exit_code(findings) == 66
    assert exit_code(findings[:2]) == 0
    lines = render_text(findings).splitlines()
    assert lines[0] == r"ok    a   x\ny"
    assert lines[2].strip() == "→ do this"
    assert lines[3].startswith("FAIL  c")
    assert lines[-1] == "staging will fail: 4 checks, 2 failed, 1 with a warning"
    assert Verdict.FAILED == "fail"
