"""The training loop's hooks as a Keras callback, for ``training_loop: keras``."""

from __future__ import annotations

from typing import Any

from study.backends.base import Hooks
from study.backends.tensorflow.steps import Inputs


def make_callback(hooks: Hooks, inputs: Inputs, validates: bool) -> Any:
    """Make a Keras callback that calls the hooks. inputs: of ``fit``. validates: whether ``fit`` validates."""
    import tf_keras as keras

    class Calls(keras.callbacks.Callback):
        """Calls the hooks."""

        def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            hooks.begin_epoch(epoch)

        def on_test_begin(self, logs: dict[str, float] | None = None) -> None:
            hooks.end_steps()

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            every = dict(logs or {})
            if not validates:
                hooks.end_steps()
            own = {name: value for name, value in every.items() if not name.startswith("val_")}
            validation = {name[4:]: value for name, value in every.items() if name.startswith("val_")}
            hooks.end_epoch(epoch, own, validation if validates else None)
            inputs.set_epoch(epoch + 1)

    class CallsInSteps(Calls):
        """Calls the hook before each step too; Keras refuses that under a parameter server."""

        def on_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:  # of training only
            hooks.begin_step()

    return CallsInSteps() if hooks.acts_on_steps else Calls()
