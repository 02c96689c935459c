"""Logistic regression, data parallel: each rank has its part of the samples, and rank 0 averages the gradients.

It knows nothing of the study but for the variables that torchrun sets too, and for the calls of study_events.
"""

import argparse
import os
from multiprocessing.connection import Client, Listener

import numpy as np
import study_events as events

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


class Averaging:
    """The mean of an array over all ranks, by a star of sockets."""

    def __init__(self) -> None:
        if RANK:
            self._peers = [_connected()]
        elif RANKS > 1:
            with Listener(ADDRESS) as listener:
                self._peers = [listener.accept() for _ in range(RANKS - 1)]
        else:
            self._peers = []

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if RANK:
            self._peers[0].send(values)
            return self._peers[0].recv()
        total = sum((peer.recv() for peer in self._peers), values) / RANKS
        for peer in self._peers:
            peer.send(total)
        return total


def _connected():
    while True:
        try:
            return Client(ADDRESS)
        except ConnectionRefusedError:
            pass


def data(samples: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples of two classes, float64 (samples, features), and their classes, 0 or 1."""
    truth = np.random.default_rng(7).normal(size=features)
    x = np.random.default_rng(seed).normal(size=(samples, features))
    return x, (x @ truth + np.random.default_rng(seed + 1).normal(size=samples) > 0).astype(float)


def measures(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Loss and accuracy."""
    p = np.clip(1 / (1 + np.exp(-x @ weights)), 1e-12, 1 - 1e-12)
    return {
        "loss": float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))),
        "accuracy": float(np.mean((p > 0.5) == y)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (
        ("epochs", int),
        ("batch", int),
        ("samples", int),
        ("features", int),
        ("rate", float),
        ("seed", int),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args()

    with events.phase("init"):
        x, y = (each[RANK::RANKS] for each in data(given.samples, given.features, 1))
        x_test, y_test = data(2000, given.features, 2)
        average, weights = Averaging(), np.zeros(given.features)
    with events.phase("run"):
        for epoch in range(1, given.epochs + 1):
            with events.phase("epoch"):
                order = np.random.default_rng(given.seed + epoch).permutation(len(x))
                for first in range(0, len(x) - given.batch + 1, given.batch):
                    batch = order[first : first + given.batch]
                    error = 1 / (1 + np.exp(-x[batch] @ weights)) - y[batch]
                    weights = weights - given.rate * average(x[batch].T @ error / given.batch)
                events.metrics(**measures(weights, x, y), learning_rate=given.rate)
                with events.phase("eval"):
                    events.metrics(
                        **{f"val_{name}": value for name, value in measures(weights, x_test, y_test).items()}
                    )
    with events.phase("eval"):
        events.metrics(**{f"test_{name}": value for name, value in measures(weights, x_test, y_test).items()})


if __name__ == "__main__":
    main()
