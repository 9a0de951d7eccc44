"""Other tar programs and libraries read our shards, and we read theirs: the same names and bytes."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from shards.tar import MemberKind, read_files, read_members
from shards.tar.format import END_MARKER, layout_sample, scan_samples

SAMPLES: dict[str, dict[str, bytes]] = {
    "train/cat/0001": {"jpg": bytes(range(256)) * 9, "cls": b"0", "seg.png": b""},
    "train/dog.v2/0002": {"jpg": b"\xff" * 512, "cls": b"1"},
    "Grüße/日本/0003": {"txt": "ä".encode(), "json": b"{}"},
    "a b/'quoted' [x]": {"txt": b"spaces"},
    "d" * 90 + "/" + "n" * 60: {"txt": b"prefix"},
    "d" * 160 + "/" + "n" * 160: {"txt": b"long name", "json": b"x" * 1025},
    "e" * 250: {"txt": b"no slash"},
}
FILES = [(f"{key}.{name}", data) for key, members in SAMPLES.items() for name, data in members.items()]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "train-000000.tar"
    with path.open("wb") as out:
        for key, members in SAMPLES.items():
            layout = layout_sample(key, [(name, len(data)) for name, data in members.items()])
            data = bytearray(layout.size)
            holes = zip((offset for offset, _ in layout.holes), members.values(), strict=True)
            for offset, piece in (*layout.literals, *holes):
                data[offset : offset + len(piece)] = piece
            out.write(data)
        out.write(END_MARKER)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The same files in a directory."""
    for name, data in FILES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "tree"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def files_in(path: Path) -> list[tuple[str, bytes]]:
    with path.open("rb") as stream:
        return [(member.name.removeprefix("./"), data) for member, data in read_files(stream, path.name)]


def assert_same_tree(directory: Path) -> None:
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert found == dict(FILES)


class TestTheyReadOurs:
    @pytest.mark.parametrize("mode", ["r:", "r|"])
    def test_standard_library(self, shard: Path, mode: str) -> None:
        with tarfile.open(shard, mode) as archive:
            assert [(info.name, archive.extractfile(info).read()) for info in archive] == FILES  # type: ignore[union-attr, call-overload]

    def test_gnu_tar(self, shard: Path, tmp_path: Path) -> None:
        tar = program("tar")
        assert run(tar, "--quoting-style=literal", "-tf", shard).splitlines() == [name for name, _ in FILES]
        run(tar, "-xf", shard, "-C", tmp_path)
        assert_same_tree(tmp_path)

    def test_bsdtar(self, shard: Path, tmp_path: Path) -> None:
        bsdtar = program("bsdtar")
        assert run(bsdtar, "-tf", shard).splitlines() == [name for name, _ in FILES]
        run(bsdtar, "-xf", shard, "-C", tmp_path)
        assert_same_tree(tmp_path)

    def test_busybox(self, shard: Path, tmp_path: Path) -> None:
        busybox = program("busybox")
        run(busybox, "tar", "-xf", shard, "-C", tmp_path)
        assert_same_tree(tmp_path)

    def test_webdataset(self, shard: Path) -> None:
        pytest.importorskip("webdataset")
        from webdataset.tariterators import group_by_keys, tar_file_expander

        # Its own url opener leaves the file to the garbage collector, which is an error in this suite.
        with shard.open("rb") as stream:
            samples = list(group_by_keys(tar_file_expander([{"url": shard.name, "stream": stream}])))
        hidden = {"__key__", "__url__", "__local_path__"}
        found = {s["__key__"]: {name: data for name, data in s.items() if name not in hidden} for s in samples}
        assert list(found.items()) == list(SAMPLES.items())

    @pytest.mark.parametrize("name", ["tar", "bsdtar"])
    def test_listing_of_a_member_beyond_8_gib(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "big.tar"
        layout = layout_sample("big", [("bin", 9 << 30), ("cls", 1)])
        with path.open("wb") as out:
            for offset, piece in layout.literals:
                out.seek(offset)
                out.write(piece)
            out.seek(layout.size)
            out.write(END_MARKER)
        lines = run(program(name), "-tvf", path).splitlines()
        assert [line.split()[2 if name == "tar" else 4] for line in lines] == [str(9 << 30), "1"]
        with tarfile.open(path) as archive:
            assert [info.size for info in archive] == [9 << 30, 1]
        with path.open("rb") as stream:
            assert [member.size for member in read_members(stream, path.name)] == [9 << 30, 1]


class TestWeReadTheirs:
    @pytest.mark.parametrize("style", ["gnu", "oldgnu", "posix", "ustar", "v7"])
    def test_gnu_tar(self, tree: Path, tmp_path: Path, style: str) -> None:
        path = tmp_path / "theirs.tar"
        limit = {"ustar": 200, "v7": 99}.get(style, 10_000)
        names = [name for name, _ in FILES if len(name.encode()) <= limit]
        run(program("tar"), f"--format={style}", "-cf", path, "-C", tree, *names)
        assert files_in(path) == [(name, data) for name, data in FILES if name in names]

    @pytest.mark.parametrize("style", ["gnu", "posix"])
    def test_gnu_tar_of_a_tree_with_links_and_holes(self, tree: Path, tmp_path: Path, style: str) -> None:
        (tree / "link.txt").symlink_to("a b")
        (tree / "same.cls").hardlink_to(tree / "train/cat/0001.cls")
        with (tree / "hole.bin").open("wb") as out:
            out.truncate(300_000)
            out.seek(100_000)
            out.write(b"island")
            out.truncate(1_000_000)
        path = tmp_path / "theirs.tar"
        run(program("tar"), f"--format={style}", "--sparse", "--sort=name", "-cf", path, "-C", tree, ".")
        found = files_in(path)
        hole = bytes(100_000) + b"island" + bytes(899_994)
        assert dict(found) == {**dict(FILES), "same.cls": b"0", "hole.bin": hole}
        with path.open("rb") as stream:
            kinds = [member.kind for member in read_members(stream, path.name)]
        assert kinds.count(MemberKind.SYMLINK) == kinds.count(MemberKind.HARD_LINK) == 1
        assert kinds.count(MemberKind.FILE) == len(FILES) + 1

    @pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
    def test_gnu_tar_sparse_versions(self, tmp_path: Path, version: str) -> None:
        with (tmp_path / "hole.bin").open("wb") as out:
            for place in range(40):
                out.seek(place * 50_000)
                out.write(b"island %d" % place)
            out.truncate(3_000_000)
        path = tmp_path / "theirs.tar"
        command = ["--format=posix", "--sparse", f"--sparse-version={version}", "--hole-detection=raw"]
        run(program("tar"), *command, "-cf", path, "-C", tmp_path, "hole.bin")
        assert files_in(path) == [("hole.bin", (tmp_path / "hole.bin").read_bytes())]
        with path.open("rb") as stream:
            assert [len(member.extents) >= 40 for member in read_members(stream, path.name)] == [True]

    @pytest.mark.parametrize("style", ["ustar", "pax", "gnutar", "v7"])
    def test_bsdtar(self, tree: Path, tmp_path: Path, style: str) -> None:
        path = tmp_path / "theirs.tar"
        limit = {"ustar": 200, "v7": 99}.get(style, 10_000)
        names = [name for name, _ in FILES if len(name.encode()) <= limit]
        run(program("bsdtar"), "--format", style, "-cf", path, "-C", tree, *names)
        assert files_in(path) == [(name, data) for name, data in FILES if name in names]

    @pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
    def test_standard_library(self, tmp_path: Path, style: int) -> None:
        path = tmp_path / "theirs.tar"
        files = [(name, data) for name, data in FILES if style != tarfile.USTAR_FORMAT or len(name) <= 200]
        with tarfile.open(path, "w", format=style) as archive:
            for name, data in files:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.mtime = 1.5 if style == tarfile.PAX_FORMAT else 0
                archive.addfile(info, io.BytesIO(data))
        assert files_in(path) == files

    @pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
    def test_webdataset(self, tmp_path: Path, suffix: str) -> None:
        webdataset = pytest.importorskip("webdataset")
        path = tmp_path / f"theirs.{suffix}"
        with webdataset.TarWriter(str(path), encoder=False) as out:
            for key, members in SAMPLES.items():
                out.write({"__key__": key, **members})
        # Its writer sorts the members of a sample by name.
        assert files_in(path) == [
            (f"{key}.{name}", data) for key, members in SAMPLES.items() for name, data in sorted(members.items())
        ]
        with path.open("rb") as stream:
            assert [sample.key for sample in scan_samples(stream, path.name)] == list(SAMPLES)
