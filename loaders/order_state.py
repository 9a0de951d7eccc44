"""Where training is in a dataset: the state that checkpoints hold, and how it moves; pure.

Rules:
    * A state is small, plain and the same on all ranks; it says nothing of ranks, workers or batches, so it can be
      restored on others.
    * A state of another dataset or order is refused, and the error names what differs.
    * What was handed out counts, not what was prefetched.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from loaders.order import NodeSplit
from shards.epoch_order import ORDER_VERSION, OrderSpec
from shards.errors import IncompatibleStateError, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderIdentity:
    """What a position depends on."""

    dataset_id: str
    split: str
    samples: tuple[int, int, int]
    """Start, stop and step of the slice of the split."""
    shuffle: str
    seed: int
    window_shards: int
    """0 when it has no effect."""
    num_nodes: int
    """1 when every node reads all shards."""
    redeal: bool
    order_version: int = ORDER_VERSION

    @classmethod
    def of(cls, dataset_id: str, split: str, samples: range, spec: OrderSpec, nodes: NodeSplit | None) -> Self:
        """Describe an order. What has no effect on it is left out, so that it cannot differ."""
        return cls(
            dataset_id=dataset_id,
            split=split,
            samples=(samples.start, samples.stop, samples.step),
            shuffle=spec.shuffle,
            seed=0 if spec.shuffle == "none" else spec.seed,
            window_shards=spec.window_shards if spec.shuffle == "block" else 0,
            num_nodes=1 if nodes is None else nodes.num_nodes,
            redeal=nodes is not None and nodes.redeal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderState:
    """A place in the epochs of a dataset."""

    identity: OrderIdentity
    epoch: int
    """0-based."""
    position: int
    """Positions of the epoch that all ranks together have consumed."""

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, for a checkpoint."""
        identity = asdict(self.identity)
        return {**identity, "samples": list(self.identity.samples), "epoch": self.epoch, "position": self.position}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` gave.

        Raises:
            IncompatibleStateError: it is not such a state.
        """
        fields = dict(state)
        missing = sorted(_FIELDS.keys() - fields.keys())
        if missing:
            raise IncompatibleStateError(
                f"not the state of a loader: it lacks {', '.join(missing)}; it has: "
                f"{', '.join(printable(str(name)) for name in sorted(fields)) or 'nothing'}"
            )
        for name, kind in _FIELDS.items():
            if type(fields[name]) is not kind and not (kind is list and isinstance(fields[name], tuple)):
                raise IncompatibleStateError(f"not the state of a loader: {name} is {fields[name]!r}")
        if fields["epoch"] < 0 or fields["position"] < 0:
            raise IncompatibleStateError(
                f"not the state of a loader: epoch {fields['epoch']}, position {fields['position']}"
            )
        samples = tuple(fields["samples"])
        if len(samples) != 3 or not all(isinstance(number, int) for number in samples):
            raise IncompatibleStateError(f"not the state of a loader: samples is {fields['samples']!r}")
        identity = OrderIdentity(
            **{name: fields[name] for name in OrderIdentity.__dataclass_fields__ if name != "samples"},
            samples=samples,
        )
        return cls(identity=identity, epoch=fields["epoch"], position=fields["position"])


_FIELDS: dict[str, type] = {
    "dataset_id": str,
    "split": str,
    "samples": list,
    "shuffle": str,
    "seed": int,
    "window_shards": int,
    "num_nodes": int,
    "redeal": bool,
    "order_version": int,
    "epoch": int,
    "position": int,
}


def check_state(state: OrderState, identity: OrderIdentity) -> None:
    """Check that a state belongs to an order.

    A position means something in its own order alone. A state from before the first batch holds no position and may
    be restored under another shuffle or seed, of the same dataset.

    Raises:
        IncompatibleStateError: it does not; names what differs.
    """
    saved, here = asdict(state.identity), asdict(identity)
    differing = [name for name in saved if saved[name] != here[name]]
    if state.position == 0:
        differing = [name for name in differing if name in ("dataset_id", "split", "samples")]
    if differing:
        listed = "\n".join(f"  {name}: saved {_show(saved[name])}, here {_show(here[name])}" for name in differing)
        raise IncompatibleStateError(
            f"the saved state (epoch {state.epoch}, position {state.position}) belongs to another "
            f"{'dataset' if differing[0] in ('dataset_id', 'split', 'samples') else 'order'}:\n{listed}\n"
            "load it with the options it was saved with, or start an epoch without it"
        )


def _show(value: object) -> str:
    return printable(str(value))


class OrderCursor:
    """Moves through the epochs: which one the next pass reads, and from where.

    A pass that begins without a word is the next epoch; ``set_epoch`` names another one; after ``load`` the next pass
    goes on where the state was taken, also when ``set_epoch`` names the same epoch. A state from an epoch's end begins
    the next one; when ``set_epoch`` insists on the ended epoch, its pass is empty, for nothing of it is left.
    """

    def __init__(self, identity: OrderIdentity) -> None:
        """Stand before the first epoch.

        Args:
            identity: the order.
        """
        self._state = OrderState(identity=identity, epoch=0, position=0)
        self._has_begun = False
        self._is_named = False

    @property
    def state(self) -> OrderState:
        """Where all ranks are."""
        return self._state

    @property
    def is_restored(self) -> bool:
        """Whether a loaded position waits for its pass."""
        return not self._has_begun and self._state.position > 0

    @property
    def next_epoch(self) -> int:
        """The epoch of the next pass, unless the current state is an epoch's end."""
        return self._state.epoch + 1 if self._has_begun else self._state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if self._has_begun or epoch != self._state.epoch:
            self._state = replace(self._state, epoch=epoch, position=0)
        self._has_begun, self._is_named = False, True

    def load(self, state: OrderState) -> None:
        """Go to a state.

        Raises:
            IncompatibleStateError: it belongs to another dataset or order.
        """
        check_state(state, self._state.identity)
        self._state = replace(state, identity=self._state.identity)
        self._has_begun, self._is_named = False, False

    def begin(self, num_positions: int) -> OrderState:
        """Begin a pass; gives its epoch and first position.

        Args:
            num_positions: of an epoch.
        """
        state = self._state
        is_over = num_positions > 0 and state.position >= num_positions
        if self._has_begun or (is_over and not self._is_named):
            self._state = replace(state, epoch=state.epoch + 1, position=0)
        self._has_begun, self._is_named = True, False
        return self._state

    def move(self, position: int) -> None:
        """Say how far all ranks are in the current pass."""
        self._state = replace(self._state, position=position)
