"""Lightning and Accelerate take the loader as it is: their epochs, their checkpoints, no sampler of theirs in it."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from loaders.pytorch import DataLoader, ShardDataset  # noqa: E402

NUM_SAMPLES = 30
BATCH_SIZE = 4


def number_of(sample):
    return int(sample.key.rpartition("/")[2])


@pytest.fixture
def numbers(build, samples_of, tmp_path):
    built = build(tmp_path / "dataset", {"train": samples_of(NUM_SAMPLES)}, shard_samples=7)
    dataset = ShardDataset(built.path, transform=number_of)
    with dataset.dataset:
        yield dataset


def make_loader(numbers, **options):
    return DataLoader(numbers, batch_size=BATCH_SIZE, shuffle=True, seed=2, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", [{}, {"num_threads": 2}], ids=["inline", "threads"])
def test_lightning_goes_on_in_the_middle_of_an_epoch(numbers, tmp_path, engine):
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def training_step(self, batch, _index):
            self.seen.append((self.current_epoch, batch.tolist()))
            return self.layer(batch.float()[:, None]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def train(max_epochs, max_steps, checkpoint=None):
        model = Model()
        saver = lightning.callbacks.ModelCheckpoint(tmp_path, filename="last", every_n_train_steps=1)
        trainer = lightning.Trainer(
            max_epochs=max_epochs,
            max_steps=max_steps,
            accelerator="cpu",
            logger=False,
            callbacks=[saver],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, make_loader(numbers, **engine), ckpt_path=checkpoint)
        return model.seen, saver.best_model_path

    whole, _ = train(2, -1)
    steps = len(whole) // 2
    for epoch in (0, 1):
        assert Counter(number for of, batch in whole if of == epoch for number in batch) == Counter(range(NUM_SAMPLES))
    first, path = train(2, steps + 3)
    rest, _ = train(2, -1, path)
    assert first + rest == whole


@pytest.mark.filterwarnings("ignore")
def test_accelerate_leaves_the_loader_alone_and_saves_its_state(numbers, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    loader = make_loader(numbers)
    _, prepared = accelerator.prepare(model, loader)
    assert prepared is loader
    accelerator.register_for_checkpointing(loader)
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(3)]
    accelerator.save_state(str(tmp_path / "state"))
    rest = [batch.tolist() for batch in batches]
    accelerator.load_state(str(tmp_path / "state"))
    assert [batch.tolist() for batch in loader] == rest
    assert Counter(number for batch in first + rest for number in batch) == Counter(range(NUM_SAMPLES))
