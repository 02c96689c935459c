"""scripts/train.py with a sleep after every training step: a known slow-down, for check_trials.py only."""

import os
import runpy
import time

from study.core.errors import exit_with_message
from study.core.paths import SCRIPTS

VARIABLE = "SLOWED_S_PER_STEP"


def sleep_after_steps(seconds: float) -> None:
    """From now on Keras sleeps so long after each training step."""
    import tf_keras

    callbacks = tf_keras.callbacks.CallbackList
    ended = callbacks.on_train_batch_end

    def on_train_batch_end(self, batch, logs=None):
        ended(self, batch, logs)
        time.sleep(seconds)

    callbacks.on_train_batch_end = on_train_batch_end


if __name__ == "__main__":
    train = runpy.run_path(str(SCRIPTS / "train.py"))
    sleep_after_steps(float(os.environ[VARIABLE]))
    exit_with_message(train["main"])
