"""What a run leaves behind, read back with TensorBoard's own reader and with json."""

import json
import math
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from dashboard import heads
from dashboard.logger import Logger
from tests.dashboard.test_heads import random_weights


def read_events(folder) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return events


def read_metrics(folder) -> list[dict]:
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def log_steps(logger: Logger, steps, offset: float = 0.0) -> None:
    for step in steps:
        values = {"train/loss": offset + step / 10, "heads/induction/max_L0": 0.5}
        logger.scalars(step, values, tokens=step * 100, seconds=step * 0.5, wall=step * 0.6)


def text_of(events: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    return [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors(f"{tag}/text_summary")]


def test_scalars_are_in_both_files(tmp_path):
    logger = Logger(tmp_path)
    log_steps(logger, [0, 10])
    assert len(read_metrics(tmp_path)) == 2, "a line must be readable as soon as it is written"
    logger.close()
    assert read_metrics(tmp_path)[1] == {
        "step": 10,
        "tokens": 1000,
        "seconds": 5.0,
        "wall": 6.0,
        "train/loss": 1.0,
        "heads/induction/max_L0": 0.5,
    }
    events = read_events(tmp_path)
    assert set(events.Tags()["scalars"]) == {"train/loss", "heads/induction/max_L0"}
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(0, 0.0), (10, 1.0)]


def test_what_is_not_finite_is_null_in_json_and_itself_in_tensorboard(tmp_path):
    logger = Logger(tmp_path)
    logger.scalars(1, {"a": math.nan, "b": -math.inf}, tokens=0, seconds=0.0, wall=0.0)
    logger.close()
    (line,) = read_metrics(tmp_path)
    assert (line["a"], line["b"]) == (None, None)
    events = read_events(tmp_path)
    assert math.isnan(events.Scalars("a")[0].value) and events.Scalars("b")[0].value == -math.inf


def test_a_resumed_run_has_each_step_once_and_in_order(tmp_path):
    logger = Logger(tmp_path)
    log_steps(logger, range(0, 60, 10))
    logger.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 60, "tok')  # killed while writing
    time.sleep(1.1)  # event files are read in the order of their names, which count seconds
    logger = Logger(tmp_path, resume_step=30)
    log_steps(logger, [40, 50], offset=100)
    logger.close()

    expected = [(0, 0), (10, 1), (20, 2), (30, 3), (40, 104), (50, 105)]
    assert [(line["step"], line["train/loss"]) for line in read_metrics(tmp_path)] == expected
    assert [(e.step, e.value) for e in read_events(tmp_path).Scalars("train/loss")] == expected
    assert sorted(p.name.split(".")[0] for p in tmp_path.iterdir()) == ["events", "events", "metrics"]


def test_a_resumed_run_has_each_map_once_in_tensorboard_s_slow_loader_too(tmp_path):
    weights = random_weights(0, 1, 1, 2, 2)
    for resume_step, steps in ((None, [0, 10, 20]), (10, [15, 20])):
        logger = Logger(tmp_path, resume_step=resume_step)
        for step in steps:
            logger.maps(step, "text", weights, ["a", "b"])
        logger.close()
        time.sleep(1.1)
    events = plugin_event_accumulator.EventAccumulator(str(tmp_path), {}, {"attention": 0})
    assert [event.step for event in events.Reload().Tensors("attention/text")] == [0, 10, 15, 20]


def test_resuming_before_the_first_line_was_written(tmp_path):
    logger = Logger(tmp_path, resume_step=0)
    log_steps(logger, [10])
    logger.close()
    assert [line["step"] for line in read_metrics(tmp_path)] == [10]


def test_the_folder_is_made(tmp_path):
    Logger(tmp_path / "samples" / "now").close()
    assert read_metrics(tmp_path / "samples" / "now") == []


def test_a_second_new_run_in_the_same_folder_is_refused(tmp_path):
    Logger(tmp_path).close()
    with pytest.raises(FileExistsError):
        Logger(tmp_path)


def test_texts_are_indented_so_that_they_are_shown_literally(tmp_path):
    logger = Logger(tmp_path)
    logger.config("model:\n  n_heads: 4\n")
    logger.sample(5, "从前", "有座山\n<img src=x>\n# $x$")
    logger.sample(6, "\n", "no prompt")
    logger.close()
    events = read_events(tmp_path)
    assert text_of(events, "config") == [(0, "    model:\n      n_heads: 4\n    ")]
    assert text_of(events, "samples") == [
        (5, "After the prompt:\n\n    从前\n\nThe model wrote:\n\n    有座山\n    <img src=x>\n    # $x$"),
        (6, "The model wrote:\n\n    no prompt"),
    ]


def test_a_picture_for_each_layer(tmp_path):
    weights = random_weights(0, 3, 4, 6, 6)
    logger = Logger(tmp_path)
    for step in (0, 50):
        logger.attention(step, "text", weights, list("abcdef"), heads.scores(weights, torch.arange(6)))
    logger.close()
    events = read_events(tmp_path)
    assert set(events.Tags()["images"]) == {f"attention/text/L{layer}" for layer in range(3)}
    assert [e.step for e in events.Images("attention/text/L2")] == [0, 50]
    first, second = (events.Images(f"attention/text/L{layer}")[0] for layer in (0, 1))
    (tmp_path / "0.png").write_bytes(first.encoded_image_string)
    (tmp_path / "1.png").write_bytes(second.encoded_image_string)
    pixels = [np.asarray(Image.open(tmp_path / name)) for name in ("0.png", "1.png")]
    assert pixels[0].shape == (first.height, first.width, 3)
    assert (pixels[0] != pixels[1]).mean() > 0.1


def test_histograms_leave_out_what_is_not_finite(tmp_path):
    logger = Logger(tmp_path)
    logger.histograms(3, {"weights/a": torch.tensor([1.0, 2.0, float("nan")], dtype=torch.bfloat16)})
    logger.histograms(4, {"weights/a": torch.tensor([float("inf")])})
    logger.close()
    events = read_events(tmp_path)
    (event,) = events.Histograms("weights/a")
    assert (event.step, event.histogram_value.num, event.histogram_value.sum) == (3, 2, 3)


class SlowToTell(event_file_writer._AsyncWriterThread):
    """TensorBoard's writer thread, which calls a record done before it keeps its error: here, long before."""

    @property
    def exception(self):
        return self.__dict__.get("kept")

    @exception.setter
    def exception(self, error):
        time.sleep(0.1 if error else 0)
        self.__dict__["kept"] = error


@pytest.mark.parametrize("last", ["scalars", "flush", "close"])
def test_an_error_in_tensorboards_thread_reaches_the_next_call(tmp_path, monkeypatch, last):
    def no_space(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # the thread would print it, too
    monkeypatch.setattr(event_file_writer, "_AsyncWriterThread", SlowToTell)
    logger = Logger(tmp_path)
    logger.flush()
    monkeypatch.setattr(event_file_writer.RecordWriter, "write", no_space)
    logger.config("text")
    with pytest.raises(OSError, match="No space left"):
        if last == "scalars":
            time.sleep(0.3)
            log_steps(logger, [1])
        else:
            getattr(logger, last)()
    with suppress(OSError):
        logger.close()
    for thread in threading.enumerate():
        if isinstance(thread, SlowToTell):
            thread.join()


@pytest.mark.parametrize("large", ["metrics", "events"])
def test_a_full_disk_stops_the_run(tmp_path, large):
    """A real limit on the size of files, in a process of its own."""
    code = f"""if True:
        import resource
        from pathlib import Path
        from dashboard.logger import Logger
        logger = Logger(Path({str(tmp_path)!r}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for step in range(1000):
            if {large!r} == "metrics":
                logger.scalars(step, {{"train/loss": 1.0}}, tokens=step, seconds=0.1, wall=0.1)
            else:
                logger.sample(step, "", "word " * 50)
                logger.flush()
            print(step)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert 0 < int(done.stdout.split()[-1]) < 400
