"""The nasty trees: a table of name → what lies in the source and how it is packed.

Each has its expected report in ``expected/NAME.json``. After a change to this table or to the packer's rules:
``python tests/packer/nasty/regenerate.py``, then read the differences against ``docs/format.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.packer.nasty.entries import DEFAULT_MTIME_NS, DEFAULT_SIZE_BYTES, Entry, Kind

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A source and how it is packed."""

    entries: tuple[Entry, ...]
    args: tuple[str, ...] = ()
    """Arguments of ``pack build`` after source and destination."""
    source: str = "source"
    """What is packed, relative to the directory above the tree."""
    destination: str = "out"
    """Where to, relative to the same."""
    as_nobody: bool = False
    """Whether the packer runs without the rights of root."""


def tree(
    entries: Sequence[str | bytes | Entry],
    *args: str,
    source: str = "source",
    destination: str = "out",
    as_nobody: bool = False,
) -> Tree:
    """A tree; a bare name is a small file."""
    made = tuple(entry if isinstance(entry, Entry) else file(entry) for entry in entries)
    return Tree(entries=made, args=args, source=source, destination=destination, as_nobody=as_nobody)


def file(
    path: str | bytes, size: int = DEFAULT_SIZE_BYTES, *, mode: int | None = None, mtime_ns: int = DEFAULT_MTIME_NS
) -> Entry:
    return Entry(path=_bytes(path), size_bytes=size, mode=mode, mtime_ns=mtime_ns)


def sparse(path: str, size: int) -> Entry:
    return Entry(path=_bytes(path), kind=Kind.SPARSE, size_bytes=size)


def directory(path: str | bytes, *, mode: int | None = None) -> Entry:
    return Entry(path=_bytes(path), kind=Kind.DIRECTORY, mode=mode)


def link(path: str, target: str) -> Entry:
    return Entry(path=_bytes(path), kind=Kind.SYMLINK, target=_bytes(target))


def hard_link(path: str, target: str) -> Entry:
    return Entry(path=_bytes(path), kind=Kind.HARD_LINK, target=_bytes(target))


def special(path: str, kind: Kind) -> Entry:
    return Entry(path=_bytes(path), kind=kind)


def _bytes(path: str | bytes) -> bytes:
    return path if isinstance(path, bytes) else path.encode()


LAST_DOT_ESCAPED = ("--key-rule", "last-dot", "--dotted-names", "escape")
LAST_DOT_ALLOWED = ("--key-rule", "last-dot", "--dotted-names", "allow")
ALLOW_DOTS = ("--dotted-names", "allow")
SKIP_KEYLESS = ("--on-keyless", "skip")
ALLOW_CASE = ("--case-collisions", "allow")

TRACK = ["Track 2.0 (Clean).mp3", "Track 2.0 (Clean).json", "Track 3.mp3"]
SPAM = [f"spam/{n:05d}.{n * 7919:08x}.{extension}" for n in range(1, 16) for extension in ("txt", "json")]
LINKS = [
    file("real/a.jpg"),
    file("real/a.txt"),
    link("b.jpg", "real/a.jpg"),
    link("c.jpg", "b.jpg"),
    link("dir", "real"),
    file("z.jpg"),
]
DEEP = "/".join(["d" * 200] * 19)
"""3 818 bytes: a path of this length can just be opened, whatever lies above it in a test."""

DOTS = {
    "dots-track": tree(TRACK),
    "dots-track-allowed": tree(TRACK, *ALLOW_DOTS),
    "dots-track-last-dot": tree(TRACK, "--key-rule", "last-dot"),
    "dots-track-last-dot-allowed": tree(TRACK, *LAST_DOT_ALLOWED),
    "dots-track-escaped": tree(TRACK, *LAST_DOT_ESCAPED),
    "dots-version": tree(["v1.0.2-py3.08.pkl", "v1.0.2-py3.09.pkl", "v1.0.3-py3.09.pkl"]),
    "dots-version-escaped": tree(["v1.0.2-py3.08.pkl", "v1.0.2-py3.09.pkl", "v1.0.3-py3.09.pkl"], *LAST_DOT_ESCAPED),
    "dots-four": tree(["a.b.c.d", "x/a.b.c.d.e", "b.d"]),
    "dots-four-allowed": tree(["a.b.c.d", "x/a.b.c.d.e", "b.d"], *ALLOW_DOTS),
    "dots-compound-extensions": tree(["foo0.left.png", "foo0.right.png", "foo1.left.png", "foo1.right.png"]),
    "dots-compound-extensions-allowed": tree(
        ["foo0.left.png", "foo0.right.png", "foo1.left.png", "foo1.right.png", "foo1.seg.PNG"], *ALLOW_DOTS
    ),
    "dots-sidecar": tree(["photo.jpg", "photo.jpg.json", "other.jpg", "other.jpg.json"], *ALLOW_DOTS),
    "dots-sidecar-escaped": tree(["photo.jpg", "photo.jpg.json"], *LAST_DOT_ESCAPED),
    "dots-in-directories": tree(["train.v1/0001.jpg", "train.v1/0001.txt", "22.0/1.png", "a.b/c.d/e.f", "v1./x.jpg"]),
    "dots-in-directory-and-name": tree(["22.0/1.1.png", "22.0/2.png"]),
    "dots-trailing": tree(["a.", "b..", "c.jpg.", "d.jpg"]),
    "dots-trailing-allowed": tree(["a.", "b..", "c.jpg.", "d.jpg"], *ALLOW_DOTS, *SKIP_KEYLESS),
    "dots-trailing-last-dot": tree(["a.", "b..", "c.jpg.", "d.jpg"], *LAST_DOT_ESCAPED, *SKIP_KEYLESS),
    "dots-double": tree(["a..jpg", "b...c.jpg"], *ALLOW_DOTS),
    "dots-double-escaped": tree(["a..jpg", "b...c.jpg"], *LAST_DOT_ESCAPED),
    "dots-ogg-ogg": tree(["apple_desc.ogg.ogg", "apple_desc.ogg", "pear_desc.ogg"]),
    "dots-ogg-ogg-allowed": tree(["apple_desc.ogg.ogg", "apple_desc.ogg", "pear_desc.ogg"], *ALLOW_DOTS),
    "dots-many-offenders": tree([f"{n:02d}.v1.jpg" for n in range(25)]),
    "dots-message-numbers": tree(SPAM),
    "dots-message-numbers-allowed": tree(SPAM, *ALLOW_DOTS, "--many-extensions", "allow"),
    "dots-message-numbers-suspected": tree(SPAM, *ALLOW_DOTS),
    "dots-message-numbers-escaped": tree(SPAM, *LAST_DOT_ESCAPED),
    "dots-percent-twins": tree(["a.b.jpg", "a%2Eb.txt", "c%2Ed.jpg", "50%.jpg"], *LAST_DOT_ESCAPED),
    "dots-percent-twins-same-extension": tree(["a.b.jpg", "a%2Eb.jpg"], *LAST_DOT_ESCAPED),
}

KEYLESS = {
    "keyless-no-extension": tree(["README", "brown/ca01", "brown/ca02", "LICENSE.txt"]),
    "keyless-no-extension-skipped": tree(["README", "brown/ca01", "brown/ca02", "LICENSE.txt"], *SKIP_KEYLESS),
    "keyless-only": tree(["README", "brown/ca01"]),
    "keyless-only-skipped": tree(["README", "brown/ca01"], *SKIP_KEYLESS),
    "keyless-by-pattern": tree(
        ["img_001_rgb", "img_001_depth", "img_002_rgb", "notes", "x_"],
        "--key-rule",
        r"regex:(?P<key>.+)_(?P<extension>[^_/]+)",
    ),
    "pattern": tree(
        ["img_001_rgb", "img_001_depth", "d.v1/img_002_rgb"], "--key-rule", r"regex:(?P<key>.+)_(?P<extension>[^_/]+)"
    ),
    "pattern-unstorable": tree(
        ["img_001.v2_rgb", "img_001.v2_depth"], "--key-rule", r"regex:(?P<key>.+)_(?P<extension>[^_/]+)", *ALLOW_DOTS
    ),
    "pattern-one-key-for-all": tree(["a/x.jpg", "b/y.jpg"], "--key-rule", r"regex:(?P<key>.).*[.](?P<extension>\w+)"),
    "pattern-drops-directory": tree(
        ["a/x.jpg", "b/x.jpg"], "--key-rule", r"regex:.*/(?P<key>\w+)[.](?P<extension>\w+)"
    ),
    "hidden": tree([".hidden", ".hidden.jpg", ".git/config.txt", "...", "..a.jpg", ". .jpg", "d/.x", "a.jpg"]),
    "hidden-only": tree([".a.jpg", ".b/c.jpg"]),
    "apple-double": tree(["dir/._a.jpg", "dir/a.jpg", ".DS_Store", "dir/.DS_Store", "__MACOSX/dir/._a.jpg", "._b"]),
    "apple-double-look-alikes": tree(["my__MACOSX/a.jpg", "__MACOSX.jpg", "d/__MACOSX", "_a.jpg", "DS_Store.jpg"]),
    "nfs-leftovers": tree([".nfs000000000004d2f100000001", "d/.nfs00000001", "nfs.jpg", ".nfsrc"]),
}

CASES = {
    "case-of-extensions": tree(["a.JPG", "b.Jpg", "c.jpg", "c.TXT", "D/e.PNG"]),
    "case-twin-extensions": tree(["a.JPG", "a.jpg", "b.Txt", "b.tXT", "b.txt"]),
    "case-twin-extensions-case-allowed": tree(["a.JPG", "a.jpg"], *ALLOW_CASE),
    "case-twin-keys": tree(["JabRef.svg", "jabref.svg", "A.jpg", "a.txt", "c.jpg"]),
    "case-twin-keys-allowed": tree(["JabRef.svg", "jabref.svg", "A.jpg", "a.txt", "c.jpg"], *ALLOW_CASE),
    "case-twin-directories": tree(["Dir/a.jpg", "dir/a.jpg"]),
    "case-twin-directories-other-files": tree(["Dir/a.jpg", "dir/b.jpg"]),
    "case-sharp-s": tree(["straße.jpg", "STRASSE.jpg"]),
    "case-dotless-i": tree(["I.jpg", "ı.jpg", "İ.jpg"]),
    "case-kelvin-extension": tree(["a.\u212a", "a.k"]),
    "case-lowered-file-meets-directory": tree(["a.JPG", "a.jpg/b.png"]),
    "composition-twins": tree(["caf\u00e9.jpg", "cafe\u0301.txt"]),
    "composition-twins-allowed": tree(["caf\u00e9.jpg", "cafe\u0301.txt"], *ALLOW_CASE),
    "composition-twin-extensions": tree(["a.\u00e9", "a.e\u0301"]),
}

NAMES = {
    "names-not-utf8": tree([b"caf\xe9.jpg", b"\xff.jpg", b"dir\xe9/a.jpg", b"a.jp\xe9g", "good.jpg"]),
    "names-not-utf8-but-hidden": tree([b".caf\xe9", "a.jpg"]),
    "names-not-utf8-surrogate-and-overlong": tree([b"\xed\xa0\x80.jpg", b"\xc0\xaf.jpg", b"\xf5\x80\x80\x80.jpg"]),
    "names-control": tree(
        ["a\nb.jpg", "tab\t.jpg", "bell\x07.jpg", "\x1b[31mred.jpg", "cr\r.jpg", "del\x7f.jpg", "\x01.x"]
    ),
    "names-control-refused": tree(["new\nline", "\x1b[2Jclear", "tab\there", "\x85next", "\u2028separator"]),
    "names-unicode": tree(
        ["📷.jpg", "שלום.jpg", "a\u202egpj.exe", "\u200b.jpg", "日本/語.png", "\ufeffbom.jpg", "🏳\ufe0f\u200d🌈.png"]
    ),
    "names-unicode-extension": tree(["a.фото", "b.ФОТО", "c.日本", "d.ΑΣ"]),
    "names-255-bytes": tree(["x" * 251 + ".jpg", "é" * 125 + "x.jpg", "a." + "e" * 253]),
    "names-100-and-101-bytes": tree(
        ["x" * 96 + ".jpg", "y" * 97 + ".jpg", "d/" + "z" * 94 + ".jpg", "d/" + "w" * 95 + ".jpg"]
    ),
    "names-equal-for-100-bytes": tree(["k" * 120 + "1.jpg", "k" * 120 + "2.jpg", "k" * 120 + "1.txt"]),
    "paths-prefix-corner": tree(
        [
            "p" * 155 + "/" + "n" * 96 + ".jpg",
            "q" * 156 + "/" + "n" * 96 + ".jpg",
            "r" * 155 + "/" + "n" * 97 + ".jpg",
            "s" * 77 + "/" + "t" * 77 + "/" + "n" * 96 + ".jpg",
        ]
    ),
    "paths-over-255-bytes": tree(["/".join(["deep" * 5] * 13) + "/a.jpg", "/".join(["deep" * 5] * 13) + "/a.txt"]),
    "paths-300-levels": tree(["d/" * 300 + "a.jpg", "a.jpg"]),
    "paths-nearly-path-max": tree([f"{DEEP}/a.jpg", f"{DEEP}/a.json"]),
    "paths-over-path-max": tree([f"{DEEP}/{'e' * 200}/{'f' * 200}/a.jpg", "a.jpg"]),
    "names-spaces": tree([" a.jpg", "b .jpg", "c. jpg", "d.jpg ", "   .jpg", " /a.jpg", "a b/c d.jpg"]),
    "names-dashes": tree(["-rf.jpg", "--help.txt", "-/a.jpg", "-.jpg", "--checkpoint-action=exec=x.jpg"]),
    "names-glob": tree(["*.jpg", "?.jpg", "[a].jpg", "{a,b}.jpg", "!.jpg", "**/x.jpg"]),
    "names-shell": tree(
        ["$HOME.jpg", "`id`.jpg", ";rm.jpg", "a&b.jpg", "'q'.jpg", '"d".jpg', "~.jpg", "#c.jpg", "a|b.jpg"]
    ),
    "names-percent": tree(["%s.jpg", "50%.jpg", "%2E.jpg", "%00.jpg", "%2F.jpg"]),
    "names-backslash": tree(["a\\b.jpg", "C:\\x.jpg", "\\.jpg", "\\\\server\\share.jpg"]),
    "names-windows": tree(
        ["CON.jpg", "nul.txt", "a:b.jpg", "a<b>.jpg", "aux/x.jpg", "dir./x.jpg", "dir /y.jpg", "com1.x"]
    ),
    "names-readers-use": tree(["__key__.txt", "__x__.y", "__url__.jpg", "cls.txt"]),
    "extension-key": tree(["a.__key__", "a.jpg"]),
    "extension-key-tfrecord": tree(["a.__key__", "a.jpg"], "--format", "tfrecord"),
    "extension-url": tree(["a.__url__", "a.jpg"]),
    "names-readers-take-for-metadata": tree(["__data__/a.jpg", "__a__.b__", "d/__data__/c.jpg", "e.jpg"]),
    "names-line-feed-in-dotted-directory": tree(["v1.0\n/a.jpg", "v1\n/b.jpg", "e.jpg"]),
    "names-of-tar-headers": tree(["@LongLink.jpg", "@PaxHeader.x", "pax_global_header.x", "LongLink/@LongLink.txt"]),
}

CONTENTS = {
    "empty-files": tree([file("a.jpg", 0), file("a.txt", 0), file("b.jpg", 1), file("c.jpg", 511), file("d.jpg", 512)]),
    "empty-directories": tree([directory("empty"), directory("a/empty"), directory("b.jpg"), "c.jpg"]),
    "empty-directories-only": tree([directory("empty"), directory("a/empty")]),
    "empty-tree": tree([]),
    "ragged-samples": tree(["a.jpg", "a.txt", "a.json", "b.jpg", "c.txt", "d.json", "d.jpg", "e.jpg"]),
    "five-members": tree(["bee.png", "bee.svg", "bee.txt", "bee.dat", "bee.ogg", "ant.png", "ant.txt"]),
    "same-name-in-directories": tree(["32/btc.png", "128/btc.png", "32@2x/btc.png", "svg/btc.svg", "btc.txt"]),
    "same-name-by-directory-and-split": tree(
        ["train/a.jpg", "val/a.jpg", "test/a.jpg", "train/b.jpg"], "--split", "by-dir"
    ),
    "key-is-also-a-directory": tree(["a.jpg", "a/b.jpg", "a/b/c.jpg", "a.d/e.jpg"]),
    "directory-named-like-a-picture": tree(["x.jpg/y.jpg", "x.txt", "x.jpg/z.tar/w.png", "y.tar/a.txt"]),
    "hard-links": tree(["a.jpg", hard_link("b.jpg", "a.jpg"), hard_link("d/a.jpg", "a.jpg")]),
    "sparse-file": tree([sparse("a.bin", 3 * MIB + 1), "a.txt"]),
    "times-far-away": tree(
        [
            file("a.jpg", mtime_ns=-1_000_000_001),
            file("b.jpg", mtime_ns=0),
            file("c.jpg", mtime_ns=2**33 * 10**9 + 7),
        ]
    ),
    "modes-of-all-kinds": tree(
        [
            file("a.jpg", mode=0o444),
            file("b.jpg", mode=0o4755),
            file("c.jpg", mode=0o1777),
            directory("d", mode=0o2755),
            "d/e.jpg",
        ]
    ),
    "packed-dataset-inside": tree(
        ["manifest.json", "train-000000.tar", "train-000000.tar.index.arrow", ".pack/plan.json"]
    ),
    "packed-dataset-inside-allowed": tree(
        ["manifest.json", "train-000000.tar", "train-000000.tar.index.arrow", ".pack/plan.json"], *ALLOW_DOTS
    ),
    "archives-inside": tree(["inner.tar", "inner.zip", "inner.tar.gz", ".x.partial"]),
}

LINKED = {
    "links-followed": tree(LINKS),
    "links-skipped": tree(LINKS, "--symlinks", "skip"),
    "links-refused": tree(LINKS, "--symlinks", "error"),
    "links-only-skipped": tree([link("a.jpg", "BASE/elsewhere.jpg")], "--symlinks", "skip"),
    "links-broken": tree([link("a.jpg", "nothing.jpg"), link("dir", "no/where/"), link("e.jpg", "b.jpg/x"), "b.jpg"]),
    "links-broken-skipped": tree([link("a.jpg", "nothing.jpg"), "b.jpg"], "--symlinks", "skip"),
    "links-broken-hidden": tree([link(".#lock.txt", "user@host"), "b.jpg"]),
    "links-to-themselves": tree(
        [link("self.jpg", "self.jpg"), link("x.jpg", "y.jpg"), link("y.jpg", "x.jpg"), "b.jpg"]
    ),
    "links-loop": tree([link("d/up", ".."), link("d/here", "."), "d/a.jpg", link("e", "BASE/source")]),
    "links-loop-of-two": tree(["a/x.jpg", "b/y.jpg", link("a/to-b", "../b"), link("b/to-a", "../a")]),
    "links-absolute-inside": tree(["real/a.jpg", link("b.jpg", "BASE/source/real/a.jpg")]),
    "links-outside": tree([link("b.jpg", "../out-of-source.jpg"), link("c.jpg", "BASE/out-of-source.jpg"), "a.jpg"]),
    "links-to-special-files": tree(
        [link("null.jpg", "/dev/null"), special("pipe", Kind.FIFO), link("p.jpg", "pipe"), "a.jpg"]
    ),
    "links-no-extension": tree(["lib.so", link("lib", "lib.so")]),
    "links-source-itself": tree(["real/a.jpg", link("entry", "real")], source="source/entry"),
    "links-source-itself-refused-links": tree(
        ["real/a.jpg", link("entry", "real")], "--symlinks", "error", source="source/entry"
    ),
}

SPECIAL = {
    "special-files": tree([special("pipe.jpg", Kind.FIFO), special("d/sock.jpg", Kind.SOCKET), "a.jpg"]),
    "special-files-only": tree([special("pipe.jpg", Kind.FIFO), special("sock", Kind.SOCKET)]),
    "special-device": tree([special("null.jpg", Kind.DEVICE), "a.jpg"]),
    "unreadable-file": tree([file("a.jpg", mode=0o000), file("b.jpg", mode=0o200), "c.jpg"], as_nobody=True),
    "unreadable-for-others": tree([file("a.jpg", mode=0o600), file("b.jpg", mode=0o640), "c.jpg"], as_nobody=True),
    "unreadable-directory": tree(
        [directory("shut", mode=0o000), "shut/a.jpg", directory("blind", mode=0o711), "blind/a.jpg", "c.jpg"],
        as_nobody=True,
    ),
    "unreadable-directory-listed-only": tree(
        [directory("names-only", mode=0o744), "names-only/a.jpg", "names-only/d/b.jpg", "c.jpg"], as_nobody=True
    ),
    "unreadable-but-hidden": tree(
        [file(".a.jpg", mode=0o000), directory(".shut", mode=0o000), "c.jpg"], as_nobody=True
    ),
    "unreadable-but-keyless": tree([file("README", mode=0o000), "c.jpg"], *SKIP_KEYLESS, as_nobody=True),
    "unreadable-behind-a-link": tree(
        [directory("shut", mode=0o000), "shut/a.jpg", link("l.jpg", "shut/a.jpg"), "c.jpg"], as_nobody=True
    ),
    "unreadable-source": tree([directory("d", mode=0o000)], source="source/d", as_nobody=True),
    "readable-for-others-only": tree([file("a.jpg", mode=0o004), file("b.jpg", mode=0o444)], as_nobody=True),
}

SHARDS_AND_LABELS = {
    "shards-exact-fit": tree([file("a.bin", 2560), file("b.bin", 2560), file("c.bin", 2048)], "--shard-size", "4096"),
    "shards-one-byte-too-big": tree([file("a.bin", 2560), file("b.bin", 2561)], "--shard-size", "4096"),
    "shards-huge-file": tree([sparse("huge.bin", 3 * GIB), "a.txt", file("b.bin", 9000)], "--shard-size", "4096"),
    "shards-one-file-each": tree([file(f"{n}.bin", 2560) for n in range(5)], "--shard-size", "4096", "--no-shuffle"),
    "shards-over-8-gib": tree([sparse("a.bin", 9 * GIB), "b.bin"], "--shard-size", "16GiB", "--dry-run"),
    "shards-tfrecord-over-2-gib": tree(
        [sparse("a.bin", 3 * GIB), "b.bin"], "--shard-size", "16GiB", "--dry-run", "--format", "tfrecord"
    ),
    "split-by-directory": tree(["train/a/1.jpg", "val/a/1.jpg", "v1.0/2.jpg"], "--split", "by-dir"),
    "split-by-directory-files-at-top": tree(["train/a.jpg", "val/a.jpg", "labels.csv", "x.jpg"], "--split", "by-dir"),
    "split-by-directory-keyless-at-top": tree(
        ["train/a.jpg", "val/a.jpg", "README"], "--split", "by-dir", *SKIP_KEYLESS
    ),
    "split-by-directory-odd-names": tree(
        ["train/a.jpg", "Train/b.jpg", "my split/c.jpg", "_x/d.jpg", "s" * 65 + "/e.jpg", "été/f.jpg"],
        "--split",
        "by-dir",
    ),
    "split-by-share": tree([f"{n}.jpg" for n in range(20)], "--split", "train=0.8,val=0.2"),
    "split-by-share-too-few": tree(["a.jpg"], "--split", "train=0.5,val=0.5"),
    "class-from-directory": tree(
        ["cat/1.jpg", "cat/deep/2.jpg", "dog/1.jpg", "Cat/3.jpg", "big cat\n/4.jpg"], "--class-from-dir"
    ),
    "class-from-directory-files-at-top": tree(["cat/1.jpg", "top.jpg", "x.txt"], "--class-from-dir"),
    "class-from-directory-has-cls": tree(["cat/1.jpg", "cat/1.cls", "dog/2.CLS"], "--class-from-dir"),
    "class-and-split-by-directory": tree(
        ["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"], "--split", "by-dir", "--class-from-dir"
    ),
    "class-and-split-file-between": tree(["train/cat/1.jpg", "train/2.jpg"], "--split", "by-dir", "--class-from-dir"),
    "class-torn-sample": tree(
        ["cat/1.jpg", "dog/1.txt"],
        "--class-from-dir",
        "--key-rule",
        r"regex:[^/]+/(?P<key>[^/]+)[.](?P<extension>[^./]+)",
    ),
}

PLACES = {
    "source-is-a-file": tree(["a.jpg"], source="source/a.jpg"),
    "source-is-missing": tree(["a.jpg"], source="sauce"),
    "source-is-a-fifo": tree([special("pipe", Kind.FIFO)], source="source/pipe"),
    "source-is-a-broken-link": tree([link("entry", "nothing")], source="source/entry"),
    "destination-in-source": tree(["a.jpg"], destination="source/out"),
    "destination-is-source": tree(["a.jpg"], destination="source"),
    "destination-is-a-file": tree(["d/a.jpg", "b.jpg"], source="source/d", destination="source/b.jpg"),
    "destination-reached-by-link": tree(
        [directory("d"), "d/a.jpg", link("d/l", "../b"), "b/c.jpg"], source="source/d", destination="source/b"
    ),
    "destination-has-files-of-others": tree(["d/a.jpg", "b/mine.txt"], source="source/d", destination="source/b"),
    "destination-below-a-file": tree(["d/a.jpg", "b.jpg"], source="source/d", destination="source/b.jpg/out"),
}

TREES: dict[str, Tree] = {
    **DOTS,
    **KEYLESS,
    **CASES,
    **NAMES,
    **CONTENTS,
    **LINKED,
    **SPECIAL,
    **SHARDS_AND_LABELS,
    **PLACES,
}
