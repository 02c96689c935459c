"""A workload's module with its optimizer, as a `study.backends.base.Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from study.backends.base import Hooks, State, count_rank_samples, count_rank_steps
from study.backends.pytorch import build, devices
from study.backends.pytorch.gradient_averaging import Averaging
from study.backends.pytorch.input import Batch, BatchPositions, Input, InputMeasures, split_in_order, split_into_batches
from study.backends.pytorch.losses_and_metrics import get_loss, make_metrics
from study.backends.pytorch.measures import StepMeasures
from study.backends.pytorch.optimizers import Optimizer
from study.backends.pytorch.process_group import report_ended_ranks
from study.communication import roles
from study.communication.collectives import Collectives
from study.data.order import EpochOrder, Positions, derive_rank_seed
from study.data.samples import SampleSource
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition
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
        self._device = devices.choose_device(run, ranks.local_rank)
        self.model = build.build_model(workload, run, ranks.rank, data.train.shape).to(self._device)
        self._loss, self._metrics = get_loss(run.benchmark["loss"]), make_metrics(workload)
        self._weights = [each for each in self.model.parameters() if each.requires_grad]
        self._layers = [each for each in self.model.modules() if isinstance(each, Weighted)]
        rate = learning_rate.scale_rate(run, ranks.size * run.emulated_ranks)
        momentum = run.benchmark.get("momentum", 0.0)
        self.optimizer = Optimizer(run.benchmark["optimizer"], self._weights, rate, momentum)
        # By their place in memory: one that layers share has several names.
        self.parameters = sum({each.data_ptr(): each.numel() for each in self._get_variables().values()}.values())
        self.trainable_parameters = sum(each.numel() for each in self._weights)
        self.steps_per_epoch = count_rank_steps(data, run)
        self._penalty_factor, self._finite = 1.0, 0
        self._measures = StepMeasures(run)
        streamed = data.train.is_streamed and run.emulated_ranks == 1
        self._input_measures = InputMeasures() if streamed else None
        self._inputs: dict[int, Input] = {}  # by sample source
        self._averaging: Averaging | HorovodAveraging

    def _get_variables(self) -> dict[str, Tensor]:
        """The floating-point tensors of the model by name: weights and moving statistics."""
        return {name: each for name, each in self.model.state_dict().items() if each.is_floating_point()}

    def _get_tensors(self) -> dict[str, Tensor]:
        """All tensors of the module and the slots of its optimizer, by name."""
        names = [name for name, each in self.model.named_parameters() if each.requires_grad]
        slots = {
            f"optimizer {slot} {name}": value
            for slot, values in self.optimizer.slots.items()
            for name, value in zip(names, values, strict=True)
        }
        return {**self.model.state_dict(), **slots}

    def get_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays of `get_state`, by name."""
        return {**{name: tuple(each.shape) for name, each in self._get_tensors().items()}, "optimizer steps": ()}

    def get_state(self) -> State:
        """Copies of the arrays of the module and its optimizer, by name."""
        arrays = {name: each.cpu().numpy().copy() for name, each in self._get_tensors().items()}
        return {**arrays, "optimizer steps": np.asarray(self.optimizer.steps)}

    @torch.no_grad()
    def load_state(self, state: State) -> None:
        """Copy arrays of `get_state` into the module and the optimizer."""
        for name, each in self._get_tensors().items():
            each.copy_(torch.from_numpy(np.asarray(state[name])))
        self.optimizer.steps = int(state["optimizer steps"])

    def get_weights(self) -> Iterator[NDArray[Any]]:
        """All variables of the model, one copy at a time."""
        return (each.cpu().numpy() for each in self._get_variables().values())

    def get_trained_weights(self) -> Iterator[NDArray[Any]]:
        """The weights that the optimizer changes, without moving statistics, which differ between ranks."""
        return (each.detach().cpu().numpy() for each in self._weights)

    def broadcast_state(self) -> None:
        """Give all ranks the first one's state."""
        if self._ranks.size == 1:
            return
        for name, each in self._get_tensors().items():
            self._ranks.broadcast_tensor(name, each)  # type: ignore[attr-defined]  # both kinds of ranks have it
        self.optimizer.steps = self._ranks.gather(self.optimizer.steps)[0]

    def begin_training(self, epochs: int) -> None:
        """Wrap the module for the average of its gradients."""
        compresses = self._run["gradient_compression"] == "fp16"
        if roles.get_strategy(self._run) == HOROVOD and self._ranks.size > 1:
            from study.backends.pytorch.horovod import HorovodAveraging

            self._averaging = HorovodAveraging(self.model, compresses)
            return
        self._averaging = Averaging(self.model, self._ranks, compresses, self._run["torch_compile"])

    def train_epoch(self, epoch: int, begin_step: Callable[[], None]) -> dict[str, float]:
        """Make the steps of an epoch; the metrics are of emulated rank 0."""
        self.model.train()
        build.seed_generators(derive_rank_seed(self._run.derived.seed, self._ranks.rank), epoch)
        self._reset_metrics()
        losses, sizes = [], []
        for x, y in self._make_epoch_batches(epoch):
            begin_step()
            losses.append(self._make_pass(x, y))
            sizes.append(len(x))
        return self._summarize_epoch(losses, sizes)

    def _reset_metrics(self) -> None:
        """Start all metrics from zero."""
        for metric in self._metrics:
            metric.reset()

    def _add_to_metrics(self, y: Tensor, outputs: Tensor) -> None:
        """Add a batch to all metrics."""
        for metric in self._metrics:
            metric.add(y, outputs)

    def _summarize_epoch(self, losses: list[Tensor], sizes: list[int]) -> dict[str, float]:
        """Mean loss and metrics of an epoch; counts its steps with a finite loss. losses: of the steps."""
        sums = _weight_losses(losses, sizes).cumsum(0)
        self._finite += int(torch.isfinite(sums).sum())
        return {"loss": float(sums[-1] / sum(sizes))} | self._get_metric_values()

    def _get_metric_values(self) -> dict[str, float]:
        """The values of all metrics by name."""
        return {each.name: each.value() for each in self._metrics}

    def _make_epoch_batches(self, epoch: int) -> Iterable[Batch]:
        """Make the batches of this rank in an epoch, in their order."""
        samples = self._data.train
        chosen = self._choose_batches(samples, self._draw_order(self._ranks.rank, epoch), epoch)
        batches = self._get_input(samples).make_batches(chosen)
        return self._input_measures.measure_waits(batches) if self._input_measures else batches

    def _draw_order(self, rank: int, epoch: int) -> Positions:
        """Draw the order of a rank's samples in an epoch; their own order if the benchmark does not shuffle."""
        run, number = self._run, count_rank_samples(self._data, self._run)
        if not run.benchmark["shuffle"]:
            return np.arange(number)
        return EpochOrder(run.derived.seed + rank, epoch, run["shuffle_buffer_samples"]).positions(number)

    def _choose_batches(self, samples: SampleSource, positions: Positions, epoch: int) -> Iterator[BatchPositions]:
        """The positions of each batch, with random changes if the samples are shuffled."""
        changes = samples.changes(positions, epoch) if self._run.benchmark["shuffle"] else None
        return split_into_batches(positions, self._run.derived.batch_size_per_rank, changes)

    def _get_input(self, samples: SampleSource) -> Input:
        """The input of a sample source, made at its first use."""
        if id(samples) not in self._inputs:
            prefetched, at_once = self._run["prefetch_batches"], self._run["map_parallel_calls"]
            self._inputs[id(samples)] = Input(samples, self._device, prefetched, at_once)
        return self._inputs[id(samples)]

    def step(self, x: Any, y: Any) -> None:
        """Make one step on a batch."""
        self._make_pass(x, y)

    def _make_pass(self, x: Tensor, y: Tensor) -> Tensor:
        """Make one pass; returns its loss. With several passes per step, the weights change after the last of them."""
        passes, steps = self._run["backward_passes_per_step"], self.optimizer.steps
        self._measures.begin_step()
        self._averaging.begin_step()
        is_last = (steps + 1) % passes == 0
        with report_ended_ranks():
            if is_last:
                loss = self._compute_gradients(x, y)
            else:
                with self._averaging.skip_average():
                    loss = self._compute_gradients(x, y)
        self._averaging.end_step()
        self._measures.end_step(self._averaging.ready_ns)
        if is_last:
            self._apply_gradients(passes)
        self.optimizer.steps += 1
        return loss

    def _apply_gradients(self, passes: int) -> None:
        """Change the weights by the gradients, averaged over the passes of the step, and clear them."""
        if passes > 1:
            torch._foreach_mul_([each.grad for each in self._weights if each.grad is not None], 1 / passes)
        self.optimizer.apply()
        self.model.zero_grad()

    def _compute_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute the gradients of a batch; returns its loss."""
        loss, outputs = self._compute_loss(self._averaging, x, y)
        loss.backward()
        self._add_to_metrics(y, outputs)
        return loss.detach()

    def _compute_loss(self, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """(Loss of a batch with its penalties, outputs of ``model``)."""
        is_mixed = self._run["precision"] == "mixed_bfloat16"
        with torch.autocast(self._device.type, torch.bfloat16, enabled=is_mixed):
            outputs = model(x)
        outputs = outputs.float()
        loss = self._loss(outputs, y)
        penalties = [each for each in (layer.penalty() for layer in self._layers) if each is not None]
        if penalties:
            loss = loss + self._penalty_factor * torch.stack(penalties).sum()
        return loss, outputs.detach()

    def fit(self, hooks: Hooks, first: int, epochs: int) -> None:
        """Refused: the loop runs the epochs."""
        raise TypeError("PyTorch has no loop of its own")

    @torch.inference_mode()
    def evaluate(self, samples: SampleSource) -> dict[str, float]:
        """Loss and metrics on ``samples``."""
        self.model.train(False)
        self._reset_metrics()
        losses, sizes = [], []
        for x, y in self.make_batches(samples):
            loss, outputs = self._compute_loss(self.model, x, y)
            self._add_to_metrics(y, outputs)
            losses.append(loss)
            sizes.append(len(x))
        return {"loss": float(_weight_losses(losses, sizes).sum() / sum(sizes))} | self._get_metric_values()

    def make_batches(self, samples: SampleSource) -> Iterator[Batch]:
        """Make batches of tensors, in the order of the samples."""
        return self._get_input(samples).make_batches(split_in_order(samples, self._run.derived.batch_size_per_rank))

    @torch.inference_mode()
    def predict(self, samples: SampleSource) -> Iterator[tuple[NDArray[Any], Any]]:
        """Predict ``samples``: (right outputs, outputs before the last activation), batch by batch."""
        self.model.train(False)
        for x, y in self.make_batches(samples):
            yield y.cpu().numpy(), self.model(x).float().cpu().numpy()

    def get_learning_rate(self) -> float:
        """The optimizer's learning rate."""
        return self.optimizer.rate

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.optimizer.rate = rate

    def set_penalty_factor(self, factor: float) -> None:
        """Multiply the penalties on the weights, such as weight decay, from the next step on."""
        self._penalty_factor = factor

    def count_finite_steps(self) -> int:
        """The number of steps since the last call whose loss, averaged over the epoch so far, was finite."""
        number, self._finite = self._finite, 0
        return number

    def collect_epoch_measures(self) -> dict[str, float]:
        """Columns of ``history.csv`` that were measured in the epoch: compute time, and wait for batches."""
        input_measures = self._input_measures.end_epoch(self.steps_per_epoch) if self._input_measures else {}
        return self._measures.end_epoch() | input_measures

    def summarize_step_times(self) -> dict[str, float] | None:
        """Seconds from one step's begin to the next one's; see `study.backends.base.summarize_step_times`."""
        return self._measures.summarize_step_times()

    def count_steps_made(self) -> int:
        """The number of steps, one per batch, since training began, including those before a restart."""
        return self.optimizer.steps

    def has_averaged_gradients(self) -> bool | None:
        """True if the gradients of all weights were sent in some step; None on a single rank."""
        return self._averaging.has_averaged()

    def sends_sparse_gradients(self) -> bool:
        """False: all gradients are dense."""
        return False


def _weight_losses(losses: list[Tensor], sizes: list[int]) -> Tensor:
    """The mean losses of batches, multiplied by the numbers of their samples; float64."""
    return torch.stack(losses).double().cpu() * torch.tensor(sizes)
