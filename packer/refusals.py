"""Why the names of a source are refused: collects all offenders of each kind, then says so with advice; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shards.errors import DuplicateKeyError, SourceError, list_offenders, printable


@dataclass(slots=True)
class Refusals:
    """Offenders by kind. The order of the fields is the order in which kinds are reported."""

    not_utf8: list[str] = field(default_factory=list)
    keyless: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason)."""
    dotted: list[tuple[str, str, str]] = field(default_factory=list)
    """(path, key, extension)."""
    unstorable: list[tuple[str, str]] = field(default_factory=list)
    """(path, name in the shard)."""
    unseen: list[str] = field(default_factory=list)
    case_collisions: list[str] = field(default_factory=list)
    same_member: list[str] = field(default_factory=list)
    splitless: list[str] = field(default_factory=list)
    classless: list[str] = field(default_factory=list)
    torn: list[tuple[str, str, str]] = field(default_factory=list)
    """(key, one path, another path) of samples whose files lie in different split or class directories."""
    class_clashes: list[str] = field(default_factory=list)

    def raise_any(self) -> None:
        """Raise the first kind that has offenders.

        Raises:
            SourceError: names that cannot be used.
            DuplicateKeyError: names that clash.
        """
        self._raise_unusable_names()
        self._raise_clashes()
        self._raise_labels()

    def _raise_unusable_names(self) -> None:
        if self.not_utf8:
            raise SourceError(
                f"{len(self.not_utf8)} file name(s) are not UTF-8:\n{_listed(self.not_utf8)}\n"
                "readers of shards expect UTF-8; rename them, for instance with: convmv -r -f latin1 -t utf8 SRC"
            )
        if self.keyless:
            raise SourceError(
                f"{len(self.keyless)} file(s) give no key and extension:\n"
                f"{_listed([f'{name}: {reason}' for name, reason in self.keyless])}\n"
                "leave them out with --on-keyless skip, or say how names are split with --key-rule "
                "(for instance --key-rule 'regex:(?P<key>.+)_(?P<extension>[^_/]+)')"
            )
        if self.dotted:
            lines = [f"{name}: first-dot readers see key {key}" for name, key, _ in map(_first_dot_view, self.dotted)]
            raise SourceError(
                f"{len(self.dotted)} file name(s) with several dots, which readers split in different ways:\n"
                f"{_listed(lines)}\n"
                "compound extensions such as left.png: --dotted-names allow; "
                "dots that belong to the name: --key-rule last-dot --dotted-names escape (writes them as %2E)"
            )
        if self.unstorable:
            lines = [f"{name} as {stored}" for name, stored in self.unstorable]
            raise SourceError(
                f"{len(self.unstorable)} file name(s) give a key that no reader would see again:\n{_listed(lines)}\n"
                "write the dots of keys as %2E with --dotted-names escape, or use another --key-rule"
            )
        if self.unseen:
            raise SourceError(
                f"{len(self.unseen)} file name(s) that the WebDataset library passes over in silence, or takes for "
                f"fields of its own:\n{_listed(self.unseen)}\n"
                "rename them: no top directory or extension of the form __…__, no line feed in a directory beside a dot"
            )

    def _raise_clashes(self) -> None:
        if self.case_collisions:
            raise DuplicateKeyError(
                f"{len(self.case_collisions)} key(s) differ only in upper and lower case or in Unicode composition, "
                f"which some filesystems do not tell apart:\n{_listed(self.case_collisions)}\n"
                "rename one of each, or keep both with --case-collisions allow"
            )
        if self.same_member:
            raise DuplicateKeyError(
                f"{len(self.same_member)} pair(s) of files have the same key and, in lower case, the same extension:\n"
                f"{_listed(self.same_member)}\n"
                "rename one of each, or use another --key-rule"
            )

    def _raise_labels(self) -> None:
        if self.splitless:
            raise SourceError(
                f"{len(self.splitless)} file(s) lie in no split directory:\n{_listed(self.splitless)}\n"
                "--split by-dir takes the top directory as the split; move them, or use --split NAME"
            )
        if self.classless:
            raise SourceError(
                f"{len(self.classless)} file(s) lie in no class directory:\n{_listed(self.classless)}\n"
                "--class-from-dir takes the first directory as the class "
                "(with --split by-dir, the first below the split's directory)"
            )
        if self.torn:
            lines = [f"{key}: {first} and {other}" for key, first, other in self.torn]
            raise SourceError(
                f"{len(self.torn)} sample(s) have files in different directories that name a split or class:\n"
                f"{_listed(lines)}\nuse another --key-rule, or move the files of a sample together"
            )
        if self.class_clashes:
            raise DuplicateKeyError(
                f"{len(self.class_clashes)} file(s) already have the extension cls, which --class-from-dir adds:\n"
                f"{_listed(self.class_clashes)}\nleave out --class-from-dir, or rename them"
            )


def _listed(names: Sequence[str]) -> str:
    return list_offenders([printable(name) for name in names])


def _first_dot_view(offender: tuple[str, str, str]) -> tuple[str, str, str]:
    name, _, _ = offender
    start = name.rfind("/") + 1
    stem, _, extension = name[start:].partition(".")
    return name, name[:start] + stem, extension
