"""Numbers in a program's output: their forms, their units, which of several counts, and what is no whole number."""

import signal
import time

import pytest

from study.core.errors import StudyError
from study.experiment import metric_names
from study.workloads.command import patterns

RATE, EPOCH_TIME, STEP_TIME = "throughput_samples_per_s", "time_per_epoch_s", "time_per_step_s"


def read(declared, *lines, name="own", ranks=2, nodes=1, is_shared=False):
    """(value, reason) of a metric in an output."""
    reader = patterns.PatternReader([patterns.parse_metric(name, declared)], ranks, nodes, is_shared)
    for line in lines:
        reader.take(line.encode())
    return reader.read_values()[name]


@pytest.mark.parametrize(
    ("pattern", "line", "number", "why"),
    [
        ("img/s: ([0-9.]+)", "img/s: 1234.5 now", 1234.5, None),
        ("img/s: ([0-9.]+)", "img/s: 12. Done", 12.0, None),
        ("img/s: ([0-9.]+)", "img/s: 1,234.5", None, "its pattern takes '1' of '1,234.5'"),
        ("img/s: ([0-9.]+).*", "img/s: 1,234.5", None, "its pattern takes '1' of '1,234.5'"),
        ("loss ([0-9]+).*", "loss 2.31", None, "its pattern takes '2' of '2.31'"),
        ("img/s: ([0-9.]+)", "img/s: 1.2e+04", None, "its pattern takes '1.2' of '1.2e+04'"),
        ("img/s: (\\S+)", "img/s: 1.2e+04,", 12000.0, None),
        ("step PT([0-9]+)", "step PT2M7S", None, "its pattern takes '2' of 'PT2'"),
        ("img/s: ([0-9]+)", "img/s: 12.5", None, "its pattern takes '12' of '12.5'"),
        ("img/s:.*([0-9.]+)", "img/s: 1234", None, "its pattern takes '4' of '1234'"),
        ("([0-9.]+) img/s", "1,234.5 img/s", None, "its pattern takes '234.5' of '1,234.5'"),
        ("img/s: ([0-9.]+)", "img/s: 1'234'567", None, "its pattern takes '1' of \"1'234'567\""),
        ("loss ([0-9.]+)", "loss 0,5.", None, "its pattern takes '0' of '0,5.'"),  # a decimal comma
        ("lr .*([-+][0-9]+)", "lr 1e-05", None, "its pattern takes '-05' of '1e-05'"),
        ("img/s: ([0-9.,]+)", "img/s: 1,234", 1234.0, None),
        ("img/s: ([0-9.,]+)", "img/s: 0,5", None, "its pattern found '0,5', which is not a finite number"),
        ("loss (.*)", "loss nan", None, "its pattern found 'nan', which is not a finite number"),
        ("(x)?ok", "ok", None, "its pattern found '', which is not a finite number"),
        ("^[0-9]+,([0-9.]+)", "3,12.5,0.25", 12.5, None),  # a line of a CSV file
        ("([0-9]+),", "64,128", 64.0, None),
        ("([0-9]+) done", "1,2,3 done", 3.0, None),
        ("ranks ([0-9]+)x", "ranks 2x4", 2.0, None),
        ("rate: ([0-9.]+)", "rate: 2_000.0", None, "its pattern takes '2' of '2_000.0'"),
        ("rate: ([0-9._]+)", "rate: 2_000.0", 2000.0, None),
        ("rate: ([0-9.]+)", "rate: 2 000.0 img", None, "its pattern takes '2' of '2 000.0'"),
        ("rate: ([0-9.]+) ", "rate: 2 000.0 img", None, "its pattern takes '2' of '2 000.0'"),
        ("rate: ([0-9. ]+) img", "rate: 2 000.0 img", 2000.0, None),
        ("rate: (.+) img", "rate: 1\u202f234\u202f567.5 img", 1234567.5, None),
        ("([0-9.]+) img", "rate: 2 000.0 img", None, "its pattern takes '000.0' of '2 000.0'"),
        ("[0-9]+ ([0-9.]+) img", "3 100.5 img", 100.5, None),  # two columns
        ("loss ([0-9.]+)", "loss 2.31 100", 2.31, None),
        ("Total: ([0-9.]+)", "Total: 0:02:07", None, "its pattern takes '0' of '0:02:07'"),
        ("Total: .*:([0-9.]+)", "Total: 0:02:07", None, "its pattern takes '07' of '0:02:07'"),
        ("throughput.*?([0-9.]+)", "throughput_p50: 12.5", None, "its pattern takes '50' of 'throughput_p50'"),
        ("loss.*?([0-9.]+)", "loss: -0.25", None, "its pattern takes '0.25' of '-0.25'"),
        ("loss: (\\S+)", "loss: -0.25;", -0.25, None),
        ("rate: ([0-9.]+)", "rate: 4.0k img", 4000.0, None),
        ("rate: (\\S+)", "rate: 1.09M", 1.09e6, None),
        ("rate: ([0-9.]+)k", "rate: 4.0k img", 4000.0, None),
        ("mem: ([0-9.]+)", "mem: 512MB", None, "its pattern found '512', which is in MB; give unit: MB"),
        ("mem: ([0-9.]+)", "mem: 512 MiB", None, "its pattern found '512', which is in MiB; give unit: MiB"),
        ("rows: ([0-9.]+)", "rows: 512x", None, "its pattern found '512', and the unit 'x' behind it is not known"),
        ("mem: ([0-9.]+)MB", "mem: 512MB", 512.0, None),
        ("took ([0-9.]+)", "took 12.5ms", None, "its pattern found '12.5', which is in ms; give unit: ms"),
        ("took ([0-9.]+)ms", "took 12.5ms", 12.5, None),
        ("took (\\S+)", "took 0:02:07", None, "its pattern found '0:02:07', which is in s; give unit: s"),
        ("rate\\W+([0-9.]+)", "\x1b[32mrate\x1b[0m: \x1b[1;36m2000.5\x1b[0m img", 2000.5, None),
        ("rate.*?([0-9.]+)", "\x1b[32mrate\x1b[0m: \x1b[1;36m2000.5\x1b[0m img", 2000.5, None),
        (".*img: ([0-9.]+)", "0 img: 2000.0 (best img: 9999.0)", None,
         "its pattern found '9999.0', and '2000.0' before it in the line; leave out .*"),
    ],
)  # fmt: skip
def test_a_part_of_a_number_is_no_number(pattern, line, number, why):
    assert read(pattern, line) == (number, why)


@pytest.mark.parametrize(
    ("name", "declared", "line", "number"),
    [
        (STEP_TIME, "time ([0-9.]+)ms", "iter 9: loss 2.1, time 52.33ms, mfu 8%", 0.05233),  # nanoGPT
        (STEP_TIME, "time ([0-9.]+)", "time 52.33 ms", 0.05233),
        (STEP_TIME, "time (\\S+)", "time 52.33ms,", 0.05233),
        (STEP_TIME, {"pattern": "time ([0-9.]+)", "unit": "ms"}, "time 52.33", 0.05233),
        (STEP_TIME, {"pattern": "time ([0-9.]+)", "unit": "ms"}, "time 1.5 s", 1.5),  # the line says so
        (STEP_TIME, r"iteration \(ms\): ([0-9.]+)", "elapsed time per iteration (ms): 1234.5 |", 1.2345),  # Megatron
        (STEP_TIME, "step_time_ms=([0-9.]+)", "step_time_ms=12.5", 0.0125),
        (STEP_TIME, "([0-9.]+ ?[a-z]+)/step", "10/10 - 1s 52ms/step - loss: 1.2", 0.052),  # Keras
        (STEP_TIME, "([0-9.]+ ?(?:it/s|s/it))", "10/10 [00:01<00:00, 8.0it/s]", 0.125),  # tqdm
        (STEP_TIME, "([0-9.]+ ?(?:it/s|s/it))", "10/10 [00:01<00:00, 1.25s/it]", 1.25),
        (EPOCH_TIME, "Total time: (\\S+)", "Epoch: [0] Total time: 0:02:07 (0.1 s / it)", 127),  # torchvision
        (EPOCH_TIME, "took (.*)", "took 1 day, 1:00:00.5", 90000.5),
        (EPOCH_TIME, "took (.*)", "took 2m 07s", 127),
        (EPOCH_TIME, "took ([0-9.]+)", "took 2.5 min", 150),
        (EPOCH_TIME, "took ([0-9.]+)", "took 127", 127),
        (STEP_TIME, "in ([0-9.]+) s", "10 steps in 5.2 s", 0.52),
        (STEP_TIME, "([0-9.]+) s", "[5.2 s for the last 10 iterations]", 0.52),
        (STEP_TIME, "took (\\S+)", "500/1,875 batches took 0:02:00", 0.24),
        (STEP_TIME, "time: ([0-9.]+)", "after 10 steps, time: 5.2 s", 5.2),
        (STEP_TIME, "in ([0-9.]+ ms/step)", "10 steps in 520 ms/step", 0.52),
        (EPOCH_TIME, "in ([0-9.]+)", "epoch 3: 100 steps in 5.2 s", 5.2),
        (EPOCH_TIME, "in ([0-9.]+)", "3 epochs in 12 min", 240),
        (RATE, "rate: ([0-9.]+)", "rate: 1000.5", 1000.5),
        (RATE, "rate: ([0-9.]+)", "rate: 4.0k img/s", 4000),
        (RATE, "rate: ([0-9.]+)", "rate: 4.0 k img/s", 4000),
        (RATE, "rate: ([0-9.]+)", "rate: 60 images/min", 1),
        (RATE, "rate: ([0-9.]+)", "rate: 100 samples/s/GPU", 200),
        (RATE, "'train_samples_per_second': ([0-9.]+)", "{'train_samples_per_second': 52.1}", 52.1),  # Transformers
        (STEP_TIME, "per_iteration_ms: (\\S+)", "elapsed_time_per_iteration_ms: 1.2K", 1.2),  # nanotron
        ("tokens_per_s", "per_gpu: (\\S+)", "tokens_per_sec_per_gpu: 2.52K", 5040),
        ("own", "loss: (\\S+)", "loss: tensor(2.5, device='cuda:0')", 2.5),
        (RATE, "GPU: ([0-9.]+)", "Img/sec per GPU: 117.5 +-0.6", 235),  # Horovod's synthetic benchmark
        (RATE, r"GPU\(s\): ([0-9.]+)", "Total img/sec on 2 GPU(s): 470.1 +-2.5", 470.1),
        (RATE, {"pattern": "rate: ([0-9.]+)", "of": "rank"}, "rate: 100 img/s", 200),
        (RATE, {"pattern": "rate: ([0-9.]+)", "of": "job"}, "rate: 100 img/s", 100),
        (RATE, {"pattern": "rate: ([0-9.]+)", "unit": "images/s/node"}, "rate: 100", 100),
        (RATE, {"pattern": "rate: ([0-9.]+)", "unit": "tokens/s"}, "rate: 100 tok/s", 100),
        (RATE, {"pattern": "([0-9.]+) ?(?:img|s)/", "unit": "img/s"}, "1.25s/img", 0.8),
        ("own", {"pattern": "took (\\S+)", "unit": "s"}, "took 0:02:07", 127),
        ("own", "acc ([0-9.]+)", "acc 0.91 img/s: 2000.0", 0.91),  # the unit of the next number
        ("own", {"pattern": "took ([0-9.]+)", "unit": "ms"}, "took 1.5 s", 1500),
        ("own", {"pattern": "mem ([0-9.]+)", "unit": "GB"}, "mem 12.5GB", 12.5),
        ("own", {"pattern": "mem ([0-9.]+)", "unit": "GB"}, "mem 512MB", 0.512),
        ("own", {"pattern": "mem ([0-9.]+)", "unit": "MiB"}, "mem 1.5 GiB", 1536),
        ("gpu_memory_mb", "mem ([0-9.]+)", "mem 1.5 GB", 1500),
        ("own", {"pattern": "rate ([0-9.]+)", "unit": "tokens/s", "of": "rank"}, "rate 12.5", 25),
        ("own", {"pattern": "rate ([0-9.]+)", "unit": "it/s"}, "rate 2 s/it", 0.5),
        ("training_time_s", "took (\\S+)", "took 0:02:07", 127),  # by its name
        ("training_time_s", {"pattern": "took ([0-9.]+)", "unit": "ms"}, "took 500", 0.5),
        ("tokens_per_s", "rate ([0-9.]+)", "rate 12.5k tok/s", 12500),
        ("iterations_per_s", "([0-9.]+ ?(?:it/s|s/it))", "10/10 [00:01<00:00, 1.25s/it]", 0.8),
    ],
)  # fmt: skip
def test_units_become_those_of_the_metric(name, declared, line, number):
    assert read(declared, line, name=name) == (pytest.approx(number), None)


@pytest.mark.parametrize(
    ("name", "declared", "line", "why"),
    [
        (RATE, "rate: ([0-9.]+)", "rate: 100 tokens/s", "is in tokens/s, not in samples/s"),
        (RATE, "rate: ([0-9.]+)", "rate: 100it/s", "is in it/s, not in samples/s"),
        (RATE, "rate: ([0-9.]+)", "rate: 12.5 ms", "is in ms, not in samples/s"),
        (RATE, {"pattern": "rate: ([0-9.]+)", "of": "job"}, "rate: 100 img/s/GPU", "is declared as of: job"),
        (RATE, "rate: ([0-9.]+)", "rate: 0.0", "found 0, which no time and no throughput is"),
        ("own", "score: (\\S+)", "score: 1e308", "found 1e+308, which is too large"),
        (EPOCH_TIME, "took (\\S+)", "took 0:00:00", "found 0, which no time and no throughput is"),
        (EPOCH_TIME, "took ([0-9.]+)", "took 2.5 s/it", "is in s/it, not in s/epoch"),
        (STEP_TIME, "took ([0-9.]+)", "took 12.5m", "the unit 'm' behind it is not known"),
        ("own", {"pattern": "mem ([0-9.]+)", "unit": "GB"}, "mem 5 s", "is in s, not in GB"),
        ("own", {"pattern": "took ([0-9.]+)", "unit": "s"}, "took 5 img/s", "is in img/s, not in s"),
    ],
)  # fmt: skip
def test_a_number_in_another_unit_is_refused(name, declared, line, why):
    value, reason = read(declared, line, name=name)
    assert value is None and why in reason


@pytest.mark.parametrize(
    ("which", "value"), [("last", 4), ("first", 2), ("mean", 3), ("minimum", 2), ("maximum", 4), ("sum", 9)]
)
def test_the_choice_of_several_matches_is_declared(which, value):
    assert read({"pattern": "took ([0-9.]+)", "which": which}, "took 2", "other", "took 3", "took 4") == (value, None)


@pytest.mark.parametrize(
    ("declared", "lines", "why"),
    [
        ("loss: ([0-9.]+)", ["Epoch 0 loss: 2.31", "Epoch 1 loss: nan"], "found 'nan', which is not a finite number"),
        ("loss: (\\S+)", ["Epoch 0 loss: 2.31", "Epoch 1 loss: nan"], "found 'nan', which is not a finite number"),
        ("loss: ([0-9.]+)", ["loss: 2.3", "loss: tensor(nan, device='cuda:0')"], "found 'nan', which is not a finite"),
        ("rate: ([0-9.]+)", ["Ep. 0 rate: 2", "Ep. 1 saved"], "last match is of epoch 0, and the output goes on"),
        ("rate: ([0-9.]+)", ["Epoch 0 rate: 2", "Epoch 1 saved"], "last match is of epoch 0, and the output goes on"),
        ("loss: ([0-9.]+)", ["loss: 2.31", "loss: -0.5"], "does not take the number of a line that has 'loss: -0.5'"),
        ("time ([0-9.]+)ms", ["time 950ms", "time 1.2s"], "does not take the number of a line that has 'time 1.2s'"),
        ("([0-9.]+)it/s", ["9 [00:01, 2.5it/s]", "9 [00:01, 1.5s/it]"], "of a line that has '1.5s/it"),
        ({"pattern": "time ([0-9.]+)ms", "which": "mean"}, ["time 1.2s", "time 950ms"], "a line that has 'time 1.2s'"),
        ({"pattern": "x (\\S+)", "which": "mean"}, ["x nan", "x 2"], "found 'nan', which is not a finite number"),
        ("'loss': ([0-9.]+)", ["{'loss': 2.0, 'epoch': 1.0}", "{'epoch': 3.0}"], "is of epoch 1, and the output goes"),
    ],
)  # fmt: skip
def test_an_earlier_number_is_not_taken_for_that_of_the_end(declared, lines, why):
    value, reason = read(declared, *lines)
    assert value is None and why in reason


@pytest.mark.parametrize(
    ("declared", "lines", "value"),
    [
        ("loss: ([0-9.]+)", ["loss: nan", "loss: 2.5"], 2.5),  # a first step of mixed precision
        ("loss: ([0-9.]+)", ["epochs: 10", "max_epoch 10", "Epoch 1 loss: 2.5", "best of epoch 1"], 2.5),
        ("'loss': ([0-9.]+)", ["{'loss': 2.5, 'epoch': 2.9}", "{'train_runtime': 9.1, 'epoch': 3.0}"], 2.5),
        ("loss: ([0-9.]+)", ["Epoch: [9] loss: 2.5", "Epoch 00010: reducing the rate", "Epoch 10, saved"], 2.5),
        ("step ([0-9]+) done", ["step 10 done", "step 11 begun"], 10),  # another line
        ({"pattern": "acc ([0-9.]+)", "which": "maximum"}, ["Epoch 1 acc 0.9", "Epoch 2 acc 0.8"], 0.9),
    ],
)  # fmt: skip
def test_the_number_of_the_end_is_taken(declared, lines, value):
    assert read(declared, *lines) == (value, None)


def test_a_loss_that_is_not_finite_at_the_end_has_diverged():
    metrics = [patterns.parse_metric(name, "loss: (\\S+)") for name in ("a", "b")]
    metrics.append(patterns.parse_metric("rate", "rate: (\\S+)"))
    reader = patterns.PatternReader(metrics)
    for line in (b"loss: 2.5", b"loss: nan", b"rate: nan"):
        reader.take(line)
    assert reader.list_divergences() == ["a nan", "b nan"]
    reader.take(b"loss: 2.0")
    assert reader.list_divergences() == []


@pytest.mark.parametrize(
    ("declared", "lines", "printers"),
    [
        ("img/s: (\\S+)", ["[rank0] step 1 img/s: 9", "[rank1] step 1 img/s: 8"], 2),
        ({"pattern": "img/s: (\\S+)", "of": "job"}, ["step 1 loss 0.5 img/s: 9", "step 1 loss 0.7 img/s: 8"], 2),
        ("img/s: (\\S+)", ["step 1 img/s: 9", "step 2 img/s: 8"], 1),
        ("img/s: (\\S+)", ["img/s: 9", "img/s: 8"], 1),  # nothing tells them apart from two epochs of one rank
        ({"pattern": "img/s: (\\S+)", "of": "rank"}, ["step 1 img/s: 9", "step 1 img/s: 8"], 0),
        ("img/s/GPU: (\\S+)", ["step 1 img/s/GPU: 9", "step 1 img/s/GPU: 8"], 0),
    ],
)
def test_a_throughput_of_all_that_several_ranks_print_is_seen(declared, lines, printers):
    reader = patterns.PatternReader([patterns.parse_metric(RATE, declared)], 2, 1, is_shared=True)
    for line in lines:
        reader.take(line.encode())
    assert reader.count_printers() == ({RATE: printers} if printers else {})


def test_two_ranks_in_one_line_count_only_if_no_line_is_of_one():
    assert read("rate: ([0-9.]+)", "rate: 2", "rate: 3rate: 4", is_shared=True) == (2, None)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [(r"([0-9]+\s*)+img/s", "loss " + "1" * 40 + " sec"), ("(x+x+)+y", "x" * 60), (".*.*.*=(.)", "a" * 9000)],
)
def test_a_pattern_that_backtracks_is_given_up_and_the_others_are_not(pattern, line):
    reader = patterns.PatternReader(patterns.parse_metric(*each) for each in (("slow", pattern), ("b", "b ([0-9.]+)")))
    begun = time.process_time()
    for each in ("5 img/s x=1 xxy", line, line, "b 0.5"):
        reader.take(each.encode())
    assert time.process_time() - begun < 5 * patterns.LONGEST_SEARCH_S
    (value, why), other = reader.read_values().values()
    assert (value, other) == (None, (0.5, None))
    assert why.startswith(f"its pattern {pattern!r} was given up: it took more than 0.2 s for the line {line[:40]!r}")
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


@pytest.mark.parametrize(
    "line", ["e" * (1 << 16) + " loss 2.5", "loss 2.5" + " 3e" * (1 << 14), "a1," * 20_000 + "loss 2.5"]
)
def test_the_longest_line_costs_a_plain_pattern_little(line):
    assert read("loss ([0-9.e]+)", line, is_shared=True) == (2.5, None)


@pytest.mark.parametrize(
    ("name", "declared", "why"),
    [
        ("own", "(a{99999999999999999999})", "is no regular expression"),
        ("own", "(a)(b)", "has 2 groups; give one"),
        ("own", "(a", "is no regular expression"),
        (STEP_TIME, {"pattern": "(a)", "unit": "img/s"}, "unit: 'img/s' is none of time_per_step_s"),
        ("own_s", {"pattern": "(a)", "unit": "GB"}, "unit: 'GB', but the metric's name says s"),
        (RATE, {"pattern": "(a)", "unit": "it/s"}, "unit: 'it/s' is none of throughput_samples_per_s"),
        ("own", {"pattern": "(a)", "of": "rank"}, "of: only a throughput"),
        (RATE, {"pattern": "(a)", "unit": "img/s/GPU", "of": "job"}, "of: job, but unit: img/s/GPU is of one rank"),
    ],
)
def test_declarations_that_cannot_be_are_refused(name, declared, why):
    with pytest.raises(ValueError, match=None) as error:
        patterns.parse_metric(name, declared)
    assert why in str(error.value)


@pytest.mark.parametrize("name", ["validation_loss", "test_accuracy", "tokens_per_s", "mfu", "training_time_s", "loss"])
def test_any_metric_of_its_own_may_be_read(name):
    metric_names.check_pattern_names([name], "mine.yaml")


@pytest.mark.parametrize(
    "name", ["runtime_s", "gpus", "validation_runtime_s", "val_loss", "busbw_4_gb_per_s", "epochs"]
)
def test_a_column_of_ours_is_no_metric_of_its_own(name):
    with pytest.raises(StudyError, match=f"^mine.yaml: metrics: '{name}' "):
        metric_names.check_pattern_names([name], "mine.yaml")


@pytest.mark.parametrize(
    ("name", "declared", "is_unknown"),
    [
        (RATE, "img/s: ([0-9.]+)", True),
        (RATE, {"pattern": "img/s: ([0-9.]+)", "of": "job"}, False),
        (RATE, {"pattern": "img/s: ([0-9.]+)", "unit": "img/s/GPU"}, False),
        (RATE, "Img/sec per GPU: ([0-9.]+)", False),
        ("tokens_per_s", "tok/s: ([0-9.]+)", True),
        (STEP_TIME, "time: ([0-9.]+)", False),
        ("loss", "loss: ([0-9.]+)", False),
    ],
)
def test_a_throughput_of_one_rank_or_of_all_is_to_be_said(name, declared, is_unknown):
    assert patterns.parse_metric(name, declared).has_unknown_owner == is_unknown
