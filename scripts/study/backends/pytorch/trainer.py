"""A workload's module with its optimizer, as a `study.backends.base.Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from study.backends.base import Hooks, State, rank_samples, rank_steps
from study.backends.pytorch import build, devices
from study.backends.pytorch.gradient_averaging import Averaging
from study.backends.pytorch.input import Batch, Chosen, Input, InputMeasures, in_batches, in_order
from study.backends.pytorch.losses import loss
from study.backends.pytorch.measures import StepMeasures
from study.backends.pytorch.metrics import made
from study.backends.pytorch.operations import HOROVOD_UNSEEN, TorchProfiler
from study.backends.pytorch.optimizers import Optimizer
from study.backends.pytorch.process_group import ProcessGroup, others_may_end
from study.communication import roles
from study.communication.collectives import Collectives
from study.data.order import EpochOrder, Positions, rank_seed
from study.data.samples import SampleSource
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition
from study.instruments.operations import Profile, Window
from study.machines.run_layout import HOROVOD
from study.workloads.base import Benchmark, Data
from study.workloads.pytorch import Weighted

if TYPE_CHECKING:
    from study.backends.pytorch.horovod import HorovodAveraging


class TorchTrainer:
    """The model of one rank. The loop runs its epochs."""

    makes_steps, runs_epochs = True, False

    def __init__(self, workload: Benchmark, run: RunDefinition, ranks: Collectives, data: Data) -> None:
        self._run, self._ranks, self._data = run, ranks, data
        self._device = devices.device(run, ranks.local_rank)
        self.model = build.model(workload, run, ranks.rank, data.train.shape).to(self._device)
        self._loss, self._metrics = loss(run.benchmark["loss"]), made(workload)
        self._weights = [each for each in self.model.parameters() if each.requires_grad]
        self._layers = [each for each in self.model.modules() if isinstance(each, Weighted)]
        rate = learning_rate.scaled(run, ranks.size * run.emulated_ranks)
        momentum = run.benchmark.get("momentum", 0.0)
        self.optimizer = Optimizer(run.benchmark["optimizer"], self._weights, rate, momentum)
        # By their place in memory: one that layers share has several names.
        self.parameters = sum({each.data_ptr(): each.numel() for each in self._variables().values()}.values())
        self.trainable_parameters = sum(each.numel() for each in self._weights)
        self.steps_per_epoch = rank_steps(data, run)
        self._penalty_factor, self._finite = 1.0, 0
        self._measures = StepMeasures(run)
        streamed = data.train.is_streamed and run.emulated_ranks == 1
        self._input_measures = InputMeasures() if streamed else None
        self._inputs: dict[int, Input] = {}  # by sample source
        self._averaging: Averaging | HorovodAveraging
        self._window = self._profiled_steps() if run.profiles_operations else None

    def _variables(self) -> dict[str, Tensor]:
        """All values of the model that are numbers of its function, by name: weights and moving statistics."""
        return {name: each for name, each in self.model.state_dict().items() if each.is_floating_point()}

    def _state(self) -> dict[str, Tensor]:
        names = [name for name, each in self.model.named_parameters() if each.requires_grad]
        slots = {
            f"optimizer {slot} {name}": value
            for slot, values in self.optimizer.slots.items()
            for name, value in zip(names, values, strict=True)
        }
        return {**self.model.state_dict(), **slots}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of `state`."""
        return {**{name: tuple(each.shape) for name, each in self._state().items()}, "optimizer steps": ()}

    def state(self) -> State:
        """The module's state, and the optimizer's."""
        found = {name: each.cpu().numpy().copy() for name, each in self._state().items()}
        return {**found, "optimizer steps": np.asarray(self.optimizer.steps)}

    @torch.no_grad()
    def load(self, state: State) -> None:
        """Copy a `state` into the module and the optimizer."""
        for name, each in self._state().items():
            each.copy_(torch.from_numpy(np.asarray(state[name])))
        self.optimizer.steps = int(state["optimizer steps"])

    def weights(self) -> Iterator[NDArray[Any]]:
        """All variables of the model, one copy at a time."""
        return (each.cpu().numpy() for each in self._variables().values())

    def trained_weights(self) -> Iterator[NDArray[Any]]:
        """The same without moving statistics of batch normalisation, which differ between ranks, as their data."""
        return (each.detach().cpu().numpy() for each in self._weights)

    def broadcast_state(self) -> None:
        """Give all ranks the first one's state."""
        if self._ranks.size == 1:
            return
        for name, each in self._state().items():
            self._ranks.broadcast_tensor(name, each)  # type: ignore[attr-defined]  # both kinds of ranks have it
        self.optimizer.steps = self._ranks.gather(self.optimizer.steps)[0]

    def begin(self, epochs: int) -> None:
        """Wrap the module for the average."""
        compresses = self._run["gradient_compression"] == "fp16"
        if roles.strategy_of(self._run) == HOROVOD and self._ranks.size > 1:
            from study.backends.pytorch.horovod import HorovodAveraging

            self._averaging = HorovodAveraging(self.model, compresses)
            return
        timeline = self._ranks.timeline if isinstance(self._ranks, ProcessGroup) else None
        is_compiled = self._run["torch_compile"]
        self._averaging = Averaging(self.model, self._ranks, compresses, timeline, is_compiled)

    def train_epoch(self, epoch: int, before_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch; the metrics are of emulated rank 0."""
        self.model.train()
        build.seed_generator(rank_seed(self._run.derived.seed, self._ranks.rank), epoch)
        self._reset_metrics()
        losses, sizes = [], []
        for x, y in self._profiled(self._batches(epoch), epoch):
            before_step()
            losses.append(self._step(x, y))
            sizes.append(len(x))
        return self._logs(losses, sizes)

    def _profiled_steps(self) -> Window:
        is_horovod = roles.strategy_of(self._run) == HOROVOD and self._ranks.size > 1
        profiler = TorchProfiler(self._device, HOROVOD_UNSEEN if is_horovod else "")
        return Window(profiler, self.steps_per_epoch, self._run.derived.epochs_per_rank)

    def _profiled(self, batches: Iterable[Batch], epoch: int) -> Iterable[Batch]:
        """The batches; of a run whose operations are profiled, with the steps marked."""
        if self._window is None:
            return batches
        self._window.begin_epoch(epoch)
        return self._window.measure_steps(batches)

    def operations(self) -> Profile | None:
        """As they were profiled."""
        return self._window.profile() if self._window else None

    def _reset_metrics(self) -> None:
        for metric in self._metrics:
            metric.reset()

    def _add_to_metrics(self, y: Tensor, outputs: Tensor) -> None:
        for metric in self._metrics:
            metric.add(y, outputs)

    def _logs(self, losses: list[Tensor], sizes: list[int]) -> dict[str, float]:
        """The mean loss and the metrics; notes how many steps had a finite one. losses: of the steps."""
        sums = _weighted(losses, sizes).cumsum(0)
        self._finite += int(torch.isfinite(sums).sum())
        return {"loss": float(sums[-1] / sum(sizes))} | self._metric_values()

    def _metric_values(self) -> dict[str, float]:
        return {each.name: each.value() for each in self._metrics}

    def _batches(self, epoch: int) -> Iterable[Batch]:
        """Of this rank, in its order."""
        samples = self._data.train
        chosen = self._chosen(samples, self._order(self._ranks.rank, epoch), epoch)
        batches = self._input(samples).batches(chosen)
        return self._input_measures.measured(batches) if self._input_measures else batches

    def _order(self, rank: int, epoch: int) -> Positions:
        """The positions of a rank's samples in an epoch."""
        run, number = self._run, rank_samples(self._data, self._run)
        if not run.benchmark["shuffle"]:
            return np.arange(number)
        return EpochOrder(run.derived.seed + rank, epoch, run["shuffle_buffer_samples"]).positions(number)

    def _chosen(self, samples: SampleSource, positions: Positions, epoch: int) -> Iterator[Chosen]:
        """The positions of each batch with their random changes, which samples have that are shuffled."""
        changes = samples.changes(positions, epoch) if self._run.benchmark["shuffle"] else None
        return in_batches(positions, self._run.derived.batch_size_per_rank, changes)

    def _input(self, samples: SampleSource) -> Input:
        if id(samples) not in self._inputs:
            prefetched, at_once = self._run["prefetch_batches"], self._run["map_parallel_calls"]
            self._inputs[id(samples)] = Input(samples, self._device, prefetched, at_once)
        return self._inputs[id(samples)]

    def step(self, x: Any, y: Any) -> None:
        """Make one step on a batch."""
        self._step(x, y)

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        """One step; returns its loss. With several passes per step, the weights change after the last of them."""
        passes, steps = self._run["backward_passes_per_step"], self.optimizer.steps
        self._measures.begin_step()
        self._averaging.begin_step()
        is_last = (steps + 1) % passes == 0
        with others_may_end():
            if is_last:
                loss = self._backward(x, y)
            else:
                with self._averaging.without_average():
                    loss = self._backward(x, y)
        self._averaging.end_step()
        self._measures.end_step(self._averaging.ready_ns)
        if is_last:
            self._apply(passes)
        self.optimizer.steps += 1
        return loss

    def _apply(self, passes: int) -> None:
        if passes > 1:
            torch._foreach_mul_([each.grad for each in self._weights if each.grad is not None], 1 / passes)
        self.optimizer.apply()
        self.model.zero_grad()

    def _backward(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradients of a batch; returns its loss."""
        found, outputs = self._forward(self._averaging, x, y)
        found.backward()
        self._add_to_metrics(y, outputs)
        return found.detach()

    def _forward(self, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch with its penalties, and the outputs."""
        is_mixed = self._run["precision"] == "mixed_bfloat16"
        with torch.autocast(self._device.type, torch.bfloat16, enabled=is_mixed):
            outputs = model(x)
        outputs = outputs.float()
        found = self._loss(outputs, y)
        penalties = [each for each in (layer.penalty() for layer in self._layers) if each is not None]
        if penalties:
            found = found + self._penalty_factor * torch.stack(penalties).sum()
        return found, outputs.detach()

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """Refused: the loop runs the epochs."""
        raise TypeError("PyTorch has no loop of its own")

    @torch.inference_mode()
    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``."""
        self.model.train(False)
        self._reset_metrics()
        losses, sizes = [], []
        for x, y in self.batches(samples):
            found, outputs = self._forward(self.model, x, y)
            self._add_to_metrics(y, outputs)
            losses.append(found)
            sizes.append(len(x))
        return {"loss": float(_weighted(losses, sizes).sum() / sum(sizes))} | self._metric_values()

    def batches(self, samples: SampleSource) -> Iterator[Batch]:
        """Batches of tensors, in the order of the samples."""
        return self._input(samples).batches(in_order(samples, self._run.derived.batch_size_per_rank))

    @torch.inference_mode()
    def predictions(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """(outputs that are right, outputs of the model before its last activation), batch by batch."""
        self.model.train(False)
        for x, y in self.batches(samples):
            yield y.cpu().numpy(), self.model(x).float().cpu().numpy()

    def learning_rate(self) -> float:
        """The optimizer's learning rate."""
        return self.optimizer.rate

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.optimizer.rate = rate

    def set_momentum(self, momentum: float) -> None:
        """Set the momentum of the next steps."""
        self.optimizer.momentum = momentum

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights."""
        self._penalty_factor = factor

    def finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""
        found, self._finite = self._finite, 0
        return found

    def measured(self) -> dict[str, float]:
        """Columns of ``history.csv``."""
        of_input = self._input_measures.end_epoch(self.steps_per_epoch) if self._input_measures else {}
        return self._measures.end_epoch() | of_input

    def step_times(self) -> dict[str, float] | None:
        """As `StepMeasures.step_times`."""
        return self._measures.step_times()

    def steps_made(self) -> int:
        """Also before a restart."""
        return self.optimizer.steps

    def gradients_averaged(self) -> bool | None:
        """Whether the gradients of all weights were sent in some step; None on a single rank."""
        return self._averaging.has_averaged()

    def sparse_gradients(self) -> bool:
        """Dense gradients are sent."""
        return False


def _weighted(losses: list[Tensor], sizes: list[int]) -> Tensor:
    """The mean losses of batches, times the numbers of their samples, float64."""
    return torch.stack(losses).double().cpu() * torch.tensor(sizes)
