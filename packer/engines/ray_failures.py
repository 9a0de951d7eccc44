"""Says why Ray gave up on a shard; told by the names of its errors, without Ray."""

from shards.errors import EngineError, printable

_REASONS = {
    "OutOfMemoryError": "memory ran out on its node; give nodes more memory, or Ray fewer processors of each",
    "WorkerCrashedError": "the process that packed it died again and again, mostly because memory ran out",
    "NodeDiedError": "the node that packed it was lost, and others after it",
    "LocalRayletDiedError": "Ray's own process on its node died",
    "TaskCancelledError": "somebody cancelled its task",
    "RuntimeEnvSetupError": "a node could not get the transform's module",
}
"""Name of a class of ``ray.exceptions`` → what it means for a shard."""


def explain_failure(error: Exception, name: str) -> EngineError:
    """Turn an error of Ray into one of ours.

    Args:
        error: what Ray gave instead of a result.
        name: of the shard.
    """
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _REASONS), "")
    detail = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = _REASONS.get(kind, f"Ray could not run its task: {type(error).__name__}")
    return EngineError(
        f"{name} was not packed: {reason} ({printable(detail)[:500]}); finished shards are kept, run the same command "
        "again to go on"
    )
