"""A small network on random clusters, data parallel with DDP over Gloo; torchrun would start it as well."""

import argparse

import study_events as events
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES, CLASSES = 100, 10


def data(samples: int, seed: int) -> TensorDataset:
    """Samples around the centre of their class."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    random = torch.Generator().manual_seed(seed)
    classes = torch.randint(CLASSES, (samples,), generator=random)
    return TensorDataset(centres[classes] + 2 * torch.randn(samples, FEATURES, generator=random), classes)


def accuracy(model: nn.Module, samples: TensorDataset) -> float:
    """Share of samples in the right class."""
    with torch.no_grad():
        x, y = samples.tensors
        return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("epochs", "batch", "samples", "hidden", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)

    with events.phase("init"):
        torch.distributed.init_process_group("gloo")
        train, test = data(given.samples, 1), data(2000, 2)
        sampler = DistributedSampler(train, seed=given.seed)
        loader = DataLoader(train, batch_size=given.batch, sampler=sampler)
        torch.manual_seed(given.seed)
        layers = nn.Sequential(nn.Linear(FEATURES, given.hidden), nn.ReLU(), nn.Linear(given.hidden, CLASSES))
        model = DistributedDataParallel(layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        events.event("model_parameters", sum(each.numel() for each in model.parameters()))
    with events.phase("run"):
        for epoch in range(given.epochs):
            with events.phase("epoch"):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                events.metrics(loss=loss.item(), learning_rate=0.05)
                with events.phase("eval"):
                    events.metrics(val_accuracy=accuracy(layers, test))
    with events.phase("eval"):
        events.metrics(test_accuracy=accuracy(layers, test))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
