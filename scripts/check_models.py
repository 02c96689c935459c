"""Check the models of own benchmarks before any run; see `study.launch.model_checks`.

Reads a JSON list of {"definition", "shape", "last_batch"} from standard input. Writes, after MARK, a list with a reason
or null for each; for a benchmark whose own code fails, {"failed": its last line}.
"""

import json
import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

from study import backends  # noqa: E402
from study.backends import model_check  # noqa: E402
from study.core.errors import StudyError, exit_with_message  # noqa: E402
from study.experiment import inputs  # noqa: E402
from study.launch.model_checks import MARK  # noqa: E402

LIMITED = set[str]()  # frameworks whose threads are limited, which they take before their first use only


def main() -> None:
    """Check the models on standard input and print the list of reasons."""
    cases = json.load(sys.stdin)
    refusals = [_check_case(case) for case in cases]
    print(f"{MARK}{json.dumps(refusals)}")


def _check_case(case: dict) -> str | dict[str, str] | None:
    """Why a benchmark's model is refused, None if it is not; {"failed": reason} if its own code fails."""
    run = inputs.from_param(case["definition"])
    if why := backends.explain_missing(run.framework):
        return {"failed": why}
    try:
        if run.framework not in LIMITED:
            backends.get_backend(run.framework).limit_threads(1)
            LIMITED.add(run.framework)
        return model_check.explain_refusal(run, case["shape"], case["last_batch"])
    except StudyError as error:
        return {"failed": str(error)}
    except Exception as error:  # of the user's own code
        return {"failed": f"{type(error).__name__}: {error}".strip().splitlines()[0]}


if __name__ == "__main__":
    exit_with_message(main)
