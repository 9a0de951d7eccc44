"""A training job for the tests, run by torchrun: a small picture model, trained with DistributedDataParallel.

Each rank notes the samples of every step in a file of its own; rank 0 saves a checkpoint after every step. With
``--stall-at`` the ranks stop after that many steps and wait to be killed.
"""

import argparse
import io
import json
import os
import signal

import numpy as np
import torch
import torch.distributed
from PIL import Image
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from loaders.pytorch import DataLoader, ShardDataset


def decode(sample):
    pixels = np.asarray(Image.open(io.BytesIO(sample["png"])), dtype=np.float32) / 255
    return sample.number, torch.from_numpy(pixels.copy())[None], int(sample["cls"])


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 10)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("output")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--stall-at", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = make_model()
    model_of_all = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        ShardDataset(arguments.dataset, transform=decode),
        batch_size=arguments.batch_size,
        shuffle=True,
        seed=11,
        uneven="exact",
        num_workers=arguments.workers,
        num_threads=arguments.threads,
    )
    checkpoint_path = os.path.join(arguments.output, "checkpoint.pt")
    step = 0
    if os.path.exists(checkpoint_path):
        checkpoint = torch.load(checkpoint_path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])
        step = checkpoint["step"]
    with open(os.path.join(arguments.output, f"seen-{os.getpid()}.jsonl"), "a", encoding="ascii") as seen:
        for epoch in range(loader.epoch, arguments.epochs):
            loader.set_epoch(epoch)
            with Join([model_of_all]):
                for numbers, pictures, labels in loader:
                    step += 1
                    # before the gradients are shared: what is in a checkpoint of rank 0 is in the notes of all
                    seen.write(json.dumps({"step": step, "epoch": epoch, "numbers": numbers.tolist()}) + "\n")
                    seen.flush()
                    loss = torch.nn.functional.cross_entropy(model_of_all(pictures), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    if rank == 0:
                        save(checkpoint_path, model, optimizer, loader, step)
                    if step == arguments.stall_at:
                        signal.pause()
    with open(os.path.join(arguments.output, f"done-{rank}.json"), "w", encoding="ascii") as file:
        json.dump({"loss": loss.item(), "io": loader.snapshot().to_dict()}, file)
    torch.distributed.destroy_process_group()


def save(path, model, optimizer, loader, step):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(),
        "step": step,
    }
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
