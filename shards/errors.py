"""Every error that Shardferry raises on purpose.

The tree (whose fault it is = the class; worth repeating = ``is_transient``)::

    ShardferryError                 root of everything raised on purpose
      FormatError                   bytes do not follow the format (name, offset, reason)
        TarFormatError
        TFRecordFormatError
        ExampleFormatError
        IndexFormatError
        ManifestFormatError
        UnsupportedVersionError
      IntegrityError                well formed, but not what was promised
        DigestMismatchError
        SizeMismatchError
        DamagedShardsError          several shards cannot be used; lists all
        RemoteChangedError          a file was replaced at its source while it was being staged
      KeyGrammarError               no key can be made from this path
      SampleGroupError              members are whole, their grouping into samples is not
      ForeignShardsError            shards that somebody else made do not form a dataset
      PackError
        SourceError                 the source of a pack cannot be read as asked
        SourceChangedError          a file changed between plan and read
        DuplicateKeyError
        OversizeSampleError
        TransformError              the user's function failed on a sample, or gave what cannot be stored
        PlanMismatchError           what lies at the destination belongs to another plan
        DestinationError            the destination cannot be written
        EngineError                 the cluster that should do the work cannot be reached, or gave up
      StageError
        RemoteError(is_transient)
          RemoteMissingError
          RemoteDeniedError
          RemoteBusyError
          RemoteUnreachableError
        SelectionError              the dataset has nothing of what was selected
        ConfigurationError          options contradict one another, or what they are about
        CacheNotWritableError
        UnsupportedEnvironmentError
        NoSpaceError
        ServeFailedError            a stager that is waited for has given up
        StoppedError                asked to stop (SIGTERM, deadline); partials are kept
      LoadError
        NotStagedError
        MissingMemberError
        DecodeError                 a member's bytes are not what its extension says
        IncompatibleStateError
        BadSampleBudgetError

Messages are built from fields, the fields stay readable on the object, and each message names the thing
(path, key, offset), what was expected, what was found and what to do next. Programming mistakes are
``ValueError`` and ``TypeError``, never one of these.
"""

from collections.abc import Sequence

LISTED_OFFENDERS = 20
"""How many offenders an error lists before it only counts the rest."""


def list_offenders(offenders: Sequence[str]) -> str:
    """Render offenders one per line, the first :data:`LISTED_OFFENDERS` of them and then a count."""
    lines = [f"  {offender}" for offender in offenders[:LISTED_OFFENDERS]]
    if len(offenders) > LISTED_OFFENDERS:
        lines.append(f"  … and {len(offenders) - LISTED_OFFENDERS} more")
    return "\n".join(lines)


def printable(text: str) -> str:
    """Make a name safe for a terminal, a log line or JSON: controls and lone surrogates are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text
    )


class ShardferryError(Exception):
    """Root of every error raised on purpose."""

    is_transient = False
    """Whether the same operation may succeed when it is simply repeated."""


class FormatError(ShardferryError):
    """Bytes do not follow the format.

    Attributes:
        name: the shard or file, as the caller named it.
        offset: byte offset of the fault in the (decompressed) stream, or None when the whole file is meant.
        reason: what is wrong, one clause.
    """

    kind = "file"

    def __init__(self, name: str, offset: int | None, reason: str) -> None:
        self.name = name
        self.offset = offset
        self.reason = reason
        where = "" if offset is None else f" at byte offset {offset}"
        # a reason may quote what stands in the file
        super().__init__(f"damaged {self.kind} {printable(name)}{where}: {printable(reason)}")

    def __reduce__(self) -> tuple[type["FormatError"], tuple[str, int | None, str]]:
        return type(self), (self.name, self.offset, self.reason)


class TarFormatError(FormatError):
    """A tar shard is damaged, cut, or uses something that cannot be read safely."""

    kind = "tar shard"


class TFRecordFormatError(FormatError):
    """A TFRecord shard is damaged or cut."""

    kind = "TFRecord shard"


class ExampleFormatError(FormatError):
    """A record is not a tf.train.Example."""

    kind = "tf.train.Example in"


class IndexFormatError(FormatError):
    """A shard index is damaged or does not belong to its shard."""

    kind = "shard index"


class ManifestFormatError(FormatError):
    """A manifest is damaged, cut, or names something it must not."""

    kind = "manifest"


class UnsupportedVersionError(FormatError):
    """A file was written by a newer, incompatible version of the format."""

    kind = "file"

    def __init__(self, name: str, found: str, supported: str) -> None:
        self.found = found
        self.supported = supported
        super().__init__(
            name,
            None,
            f"format version {found} is not supported, this release reads up to {supported}; upgrade shardferry",
        )

    def __reduce__(self) -> tuple[type["UnsupportedVersionError"], tuple[str, str, str]]:  # type: ignore[override]
        return type(self), (self.name, self.found, self.supported)


class IntegrityError(ShardferryError):
    """Well-formed bytes that are not the promised ones."""


class DigestMismatchError(IntegrityError):
    """Content has another digest than the manifest or index promises.

    Attributes:
        name: shard or file.
        block: 0-based number of the block, or None when the whole file is meant.
        offset: where the block starts, in bytes from the start of the file.
        expected: promised digest, ``blake3:hex``.
        actual: digest of the bytes found.
    """

    def __init__(self, name: str, block: int | None, offset: int, expected: str, actual: str, advice: str = "") -> None:
        self.name = name
        self.block = block
        self.offset = offset
        self.expected = expected
        self.actual = actual
        self.advice = advice
        what = printable(name) if block is None else f"{printable(name)} block {block} (byte offset {offset})"
        tail = f"; {advice}" if advice else ""
        super().__init__(f"digest mismatch in {what}: expected {expected}, actual {actual}{tail}")

    def __reduce__(self) -> tuple[type["DigestMismatchError"], tuple[str, int | None, int, str, str, str]]:
        return type(self), (self.name, self.block, self.offset, self.expected, self.actual, self.advice)


class SizeMismatchError(IntegrityError):
    """A file has another size than promised."""

    def __init__(self, name: str, expected_bytes: int, actual_bytes: int, advice: str = "") -> None:
        self.name = name
        self.expected_bytes = expected_bytes
        self.actual_bytes = actual_bytes
        self.advice = advice
        tail = f"; {advice}" if advice else ""
        super().__init__(
            f"size mismatch in {printable(name)}: expected {expected_bytes} bytes, actual {actual_bytes} bytes{tail}"
        )

    def __reduce__(self) -> tuple[type["SizeMismatchError"], tuple[str, int, int, str]]:
        return type(self), (self.name, self.expected_bytes, self.actual_bytes, self.advice)


class RemoteChangedError(IntegrityError):
    """A file was replaced at its source while it was being staged.

    Attributes:
        name: the file.
        expected: the version that was seen first.
        actual: the version that is there now.
    """

    def __init__(self, name: str, expected: str, actual: str) -> None:
        self.name = name
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{printable(name)} was replaced while it was being staged: first {expected}, now {actual}; published "
            "datasets must not change, publish the new data in a directory of its own"
        )

    def __reduce__(self) -> tuple[type["RemoteChangedError"], tuple[str, str, str]]:
        return type(self), (self.name, self.expected, self.actual)


class DamagedShardsError(IntegrityError):
    """Several shards cannot be used.

    Attributes:
        faults: one sentence for each shard; all are listed, for each has to be looked after.
    """

    def __init__(self, summary: str, faults: Sequence[str], advice: str) -> None:
        self.faults = tuple(faults)
        self._arguments = (summary, self.faults, advice)
        super().__init__(f"{summary}:\n" + "\n".join(f"  {fault}" for fault in faults) + f"\n{advice}")

    def __reduce__(self) -> tuple[type["DamagedShardsError"], tuple[str, tuple[str, ...], str]]:
        return type(self), self._arguments


class KeyGrammarError(ShardferryError):
    """A key rule is not usable, or no key can be made from a path.

    Attributes:
        name: the path or the rule.
        reason: why.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{printable(name)}: {printable(reason)}")

    def __reduce__(self) -> tuple[type["KeyGrammarError"], tuple[str, str]]:
        return type(self), (self.name, self.reason)


class SampleGroupError(ShardferryError):
    """A shard's members are whole but do not form samples: a key re-appears, an extension collides, no sample at all.

    Attributes:
        name: the shard.
        offset: byte offset of the member that breaks the grouping, or None.
        reason: what is wrong, naming the keys and extensions.
    """

    def __init__(self, name: str, offset: int | None, reason: str) -> None:
        self.name = name
        self.offset = offset
        self.reason = reason
        where = "" if offset is None else f" at byte offset {offset}"
        super().__init__(f"cannot group samples of shard {printable(name)}{where}: {printable(reason)}")

    def __reduce__(self) -> tuple[type["SampleGroupError"], tuple[str, int | None, str]]:
        return type(self), (self.name, self.offset, self.reason)


class _SentenceError(ShardferryError):
    """An error whose whole fact is one sentence, made where the facts are."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ForeignShardsError(_SentenceError):
    """Shards that somebody else made do not form a dataset: none there, of two formats, incomplete, unclear splits."""


class PackError(_SentenceError):
    """Packing cannot go on."""


class SourceError(PackError):
    """The source cannot be read as asked: missing, unreadable, or its names cannot become samples."""


class SourceChangedError(PackError):
    """A source file changed between plan and read.

    Attributes:
        path: the source file.
        expected: size and mtime in the plan.
        actual: what was found.
    """

    def __init__(self, path: str, expected: str, actual: str) -> None:
        self.path = path
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"source file {printable(path)} changed while packing: planned {expected}, found {actual}; "
            "let writers finish, then run pack build again"
        )

    def __reduce__(self) -> tuple[type["SourceChangedError"], tuple[str, str, str]]:
        return type(self), (self.path, self.expected, self.actual)


class DuplicateKeyError(PackError):
    """Two samples have the same key, or two members of a sample the same extension."""


class OversizeSampleError(PackError):
    """A sample is bigger than a shard may be."""


class TransformError(PackError):
    """A user's transform failed on a sample, or gave what cannot be stored.

    Attributes:
        name: the transform, ``module:function``.
        key: the source sample, or empty when no single one is meant.
        reason: what went wrong.
    """

    def __init__(self, name: str, key: str, reason: str) -> None:
        self.name = name
        self.key = key
        self.reason = reason
        where = f" of sample {printable(key)}" if key else ""
        super().__init__(f"transform {printable(name)}{where}: {printable(reason)}")

    def __reduce__(self) -> tuple[type["TransformError"], tuple[str, str, str]]:
        return type(self), (self.name, self.key, self.reason)


class PlanMismatchError(PackError):
    """The destination holds something that belongs to another plan."""


class DestinationError(PackError):
    """The destination cannot be written."""


class EngineError(PackError):
    """The cluster that should do the work cannot be reached, or gave up on it."""

    is_transient = True


class StageError(_SentenceError):
    """Staging cannot go on."""


class RemoteError(StageError):
    """The source of a stage failed.

    Attributes:
        is_transient: whether a repeat may help.
    """

    def __init__(self, message: str, *, is_transient: bool = True) -> None:
        self.is_transient = is_transient
        super().__init__(message)


class RemoteMissingError(RemoteError):
    """The source, or a file that its manifest names, is not there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_transient=False)


class RemoteDeniedError(RemoteError):
    """The source refuses access."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_transient=False)


class RemoteBusyError(RemoteError):
    """The source asks to slow down or is away for the moment.

    Attributes:
        retry_after_seconds: how long it asks to wait before a repeat; None when it does not say.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class RemoteUnreachableError(RemoteError):
    """There is no connection to the source: a wrong address, or a service that is not up yet."""


class SelectionError(StageError):
    """The dataset has nothing of what was selected."""


class ConfigurationError(StageError):
    """Options contradict one another, or the dataset that they are about."""


class CacheNotWritableError(StageError):
    """The cache directory cannot be written by this user."""


class UnsupportedEnvironmentError(StageError):
    """What the work needs is not there: a filesystem that locks, a package, the same release on all nodes."""


class NoSpaceError(ShardferryError):
    """There is no room for what would be written.

    Attributes:
        path: the directory that is full.
        needed_bytes: what the operation still has to write.
        free_bytes: what the filesystem offers this user.
        evictable_bytes: what could be freed here by evicting staged datasets that nobody uses.
    """

    is_transient = True

    def __init__(
        self, path: str, needed_bytes: int, free_bytes: int, evictable_bytes: int = 0, advice: str = ""
    ) -> None:
        self.path = path
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.evictable_bytes = evictable_bytes
        self.advice = advice
        tail = f"; {advice}" if advice else ""
        super().__init__(
            f"not enough space in {printable(path)}: needed {needed_bytes} bytes, free {free_bytes} bytes, "
            f"evictable {evictable_bytes} bytes{tail}"
        )

    def __reduce__(self) -> tuple[type["NoSpaceError"], tuple[str, int, int, int, str]]:
        return type(self), (self.path, self.needed_bytes, self.free_bytes, self.evictable_bytes, self.advice)


class StoppedError(StageError):
    """The work was asked to stop and did so cleanly; what was finished is kept.

    Attributes:
        reason: ``"SIGTERM"``, ``"SIGINT"`` or ``"deadline"``.
    """

    is_transient = True

    def __init__(self, reason: str, message: str = "") -> None:
        self.reason = reason
        super().__init__(message or f"stopped by {reason}; finished work is kept, run the same command again to go on")

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[str, str]]:
        return type(self), (self.reason, str(self))


class ServeFailedError(StageError):
    """The stager that was waited for has given up.

    Attributes:
        code: the exit code that it would have ended with.
        reason: class of its error.
        message: its error.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        super().__init__(f"stage serve has failed: {message}")

    def __reduce__(self) -> tuple[type["ServeFailedError"], tuple[int, str, str]]:
        return type(self), (self.code, self.reason, self.message)


class LoadError(_SentenceError):
    """A dataset cannot be opened or read."""


class NotStagedError(LoadError):
    """The dataset is not (completely) in the cache or directory."""


class MissingMemberError(LoadError):
    """A wanted member does not exist in a sample.

    Attributes:
        key: the sample.
        wanted: the extension asked for.
        present: the extensions that the sample has.
    """

    def __init__(self, key: str, wanted: str, present: Sequence[str]) -> None:
        self.key = key
        self.wanted = wanted
        self.present = tuple(present)
        names = ", ".join(printable(name) for name in self.present) or "none"
        super().__init__(f"sample {printable(key)} has no member {printable(wanted)}; it has: {names}")

    def __reduce__(self) -> tuple[type["MissingMemberError"], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.key, self.wanted, self.present)


class DecodeError(LoadError):
    """A member's bytes are not what its extension says, or what decodes them is not there.

    Attributes:
        key: the sample.
        extension: the member.
        origin: where the sample lies, as text.
        reason: what is wrong.
    """

    def __init__(self, key: str, extension: str, origin: str, reason: str) -> None:
        self.key = key
        self.extension = extension
        self.origin = origin
        self.reason = reason
        super().__init__(
            f"member {printable(extension)} of sample {printable(key)} ({printable(origin)}) cannot be decoded: "
            f"{printable(reason)}"
        )

    def __reduce__(self) -> tuple[type["DecodeError"], tuple[str, str, str, str]]:
        return type(self), (self.key, self.extension, self.origin, self.reason)


class IncompatibleStateError(LoadError):
    """A saved loader state belongs to another dataset or order."""


class BadSampleBudgetError(LoadError):
    """More samples were bad than the budget allows."""
