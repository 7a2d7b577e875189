"""The whole path: text → a trained run → its folder → more text; and how it ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

import command
import sample
import train
from data.batches import Batches
from data.store import cache_folder
from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from model.position import ENCODINGS
from training import checkpoint, speed
from training.step import NotFinite
from training.stopping import State

TEXT = "".join(f"The {n} small cats saw {n * n} mice, and sat on mat {n % 7}.\n" for n in range(120))
THREADS = torch.get_num_threads()
SMALL = [
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_model=16",
    "model.context_length=16",
    "train.max_steps=6",
    "train.batch_size=4",
    "train.eval_every=3",
    "train.checkpoint_every=3",
    "log.attention_every=3",
    "log.sample_every=3",
    "tokenizer.vocab_size=280",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a text, and we stand in it."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # TensorBoard reads files by name, and those that one process makes in a second end in .9, .10, …
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    return tmp_path


def run(*words, small=SMALL):
    words = ["data=file", "data.path=text.txt", *small, *words]
    return train.train(train.configure(words), words, say=lambda line: None)


def metrics(folder):
    """The lines of metrics.jsonl, without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "wall") and "speed/" not in k}
        for line in lines
    ]


def curves(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if "speed/" not in tag]
    # Sorted: TensorBoard reads files by name, in which those of one process and second have no order.
    return {tag: sorted((point.step, point.value) for point in events.Scalars(tag)) for tag in tags}


def stop_after(monkeypatch, step, number=signal.SIGINT):
    """Ctrl-C while the batch of that step is fetched: the step is finished."""
    fetch = Batches.batch

    def batch(self, at):
        if at == step:
            os.kill(os.getpid(), number)
        return fetch(self, at)

    monkeypatch.setattr(Batches, "batch", batch)


def test_a_run_leaves_what_the_contract_promises(here):
    result = run("run_dir=out")
    folder = result.folder
    assert result.state.step == 6 and "all 6 steps" in result.ended and not result.interrupted
    assert {path.name for path in folder.iterdir()} >= {"config.yaml", "tokenizer.json", "metrics.jsonl"}
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    assert [path.name for path in checkpoint.steps(folder)] == [f"step-0000000{step}" for step in (0, 3, 6)]
    lines = metrics(folder)
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    vals = [line["val/loss"] for line in lines if "val/loss" in line]
    assert len(losses) == 6 and len(vals) == 3
    assert vals[0] == pytest.approx(torch.tensor(280.0).log().item(), abs=1e-3)  # log V
    assert vals[2] < vals[0] and result.state.best_val_loss == min(vals)
    found = curves(folder)
    assert [step for step, _ in found["val/loss"]] == [0, 3, 6]
    assert [value for _, value in found["val/loss"]] == pytest.approx(vals)
    assert [step for step, _ in found["heads/previous_token/max_L1"]] == [0, 1, 2, 3, 6]
    events = EventAccumulator(str(folder)).Reload().Tags()
    assert {"attention/text/L0", "attention/text/L1", "attention/repeats/L0"} <= set(events["images"])
    assert any("samples" in tag for tag in events["tensors"]) and any(
        "config" in tag for tag in events["tensors"]
    )


def test_two_runs_with_one_seed_are_the_same_and_another_seed_is_not(here):
    same = [metrics(run(f"run_dir=r{n}", "model.dropout=0.1").folder) for n in range(2)]
    assert same[0] == same[1]
    assert metrics(run("run_dir=other", "model.dropout=0.1", "train.seed=2").folder) != same[0]


def test_compilations_are_kept_beside_the_prepared_text(here, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    run()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(cache_folder() / "compiled")


def test_after_an_early_interruption_the_best_is_not_the_untrained_model(here, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        first = run("train.eval_every=5", "log.sample_every=5")
    assert checkpoint.named_by(first.folder, "best") == checkpoint.folder_of(first.folder, 2)
    train.report(first)
    assert "at step 0, before any training" in capsys.readouterr().out and first.sample == ""
    lines = []
    last = train.train(train.configure([f"resume={first.folder}"]), say=lines.append)
    assert "resume   goes on after step 2" in lines
    assert checkpoint.named_by(last.folder, "best") == checkpoint.folder_of(last.folder, last.state.best_step)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["optimizer=adamw", "position=learned", "model.tie_embeddings=true"],
        ["train.grad_accum=2", "tokenizer=char"],
    ],
    ids=str,
)
def test_a_run_in_pieces_is_the_run_in_one_go(here, monkeypatch, settings):
    settings = ["model.dropout=0.2", "model.token_dropout=0.1", *settings]
    whole = run("run_dir=whole", *settings)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        first = run("run_dir=pieces", *settings)
    assert first.interrupted and first.state.step == 2
    with monkeypatch.context() as patch:
        stop_after(patch, 4, signal.SIGTERM)
        second = train.train(train.configure(["resume=pieces"]), say=lambda line: None)
    assert second.interrupted and second.state.step == 5
    last = train.train(train.configure(["resume=pieces"]), say=lambda line: None)
    assert last.state.step == 6 and not last.interrupted
    for name in ("model.safetensors", "training_state.safetensors"):
        found = [(checkpoint.find(one.folder) / name).read_bytes() for one in (whole, last)]
        assert found[0] == found[1], name
    assert metrics(last.folder) == metrics(whole.folder)
    assert curves(last.folder) == curves(whole.folder)
    assert last.state.heads == whole.state.heads


def test_a_finished_run_has_nothing_to_do_and_more_steps_go_on(here):
    run("run_dir=out")
    said = []
    done = train.train(train.configure(["resume=out"]), say=said.append)
    assert done.state.step == 6 and any(
        "nothing to do" in line and "train.max_steps=12" in line for line in said
    )
    more = train.train(train.configure(["resume=out", "train.max_steps=9"]), say=said.append)
    assert more.state.step == 9
    assert "resume   train.max_steps is 9, was 6: the learning rate falls otherwise from here on" in said
    assert not any("bit-exact" in line for line in said)
    steps = [step for step, _ in curves(more.folder)["train/loss"]]
    assert steps == list(range(1, 10))


def test_other_circumstances_are_said_to_end_bit_exactness(here, monkeypatch):
    run("run_dir=out")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    units = speed.has_bfloat16("cpu")
    monkeypatch.setattr(speed, "has_bfloat16", lambda device: not units)
    said = []
    train.train(train.configure(["resume=out", "train.max_steps=7"]), say=said.append)
    assert f"resume   no longer bit-exact: threads is 7, was {THREADS}" in said
    assert f"resume   no longer bit-exact: bfloat16 units is {not units}, was {units}" in said


def test_attention_dropout_is_said_to_cost_the_fused_kernel(here):
    said = []
    words = ["data=file", "data.path=text.txt", *SMALL, "model.attention_dropout=0.1", "train.max_steps=1"]
    train.train(train.configure(words), words, say=said.append)
    assert sum("the fused kernel cannot drop weights" in line for line in said) == 1


@pytest.mark.slow
def test_a_compiled_run_in_pieces_is_the_run_in_one_go(here, monkeypatch):
    """In processes of their own, as it would be; what is compiled is kept for the second."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = [sys.executable, str(Path(train.__file__))]
    words = ["data=file", "data.path=text.txt", *SMALL, "train.compile=true", "model.dropout=0.1"]
    words += ["schedule=constant"]  # so that max_steps may change

    def go(*words, code=0):
        done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == code and "not compiled" not in done.stdout, done.stderr
        return done.stdout

    go(*words, "run_dir=whole")
    go(*words, "run_dir=pieces", "train.max_steps=4")
    assert "bit-exact" not in go("resume=pieces", "train.max_steps=6")
    for name in ("model.safetensors", "training_state.safetensors"):
        found = [(checkpoint.find(Path(run)) / name).read_bytes() for run in ("whole", "pieces")]
        assert found[0] == found[1], name


@pytest.mark.skipif(os.name == "nt", reason="signals as on Linux")
def test_sigterm_ends_a_sweep_as_its_job_saved(here):
    program = [sys.executable, str(Path(train.__file__)), "-m", "data=file", "data.path=text.txt", *SMALL]
    words = ["train.max_steps=100000", "train.compile=false", "train.seed=1,2", "train.keep=1"]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    sweep = subprocess.Popen([*program, *words], **both)
    while not any(path.name > "step-00000003" for path in Path("runs").glob("*/checkpoints/step-*")):
        assert sweep.poll() is None
        time.sleep(0.1)
    os.killpg(sweep.pid, signal.SIGTERM)  # the job gets two: from us, and from the sweep
    out = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 130 and out.count("go on    python train.py resume=runs/") == 1
    assert len(list(Path("runs").iterdir())) == 1


def test_an_interruption_before_the_first_step_leaves_no_folder(here, monkeypatch):
    from watch import Watch

    look = Watch.look
    monkeypatch.setattr(Watch, "look", lambda *args: (os.kill(os.getpid(), signal.SIGINT), look(*args)))
    with pytest.raises(KeyboardInterrupt):
        run("run_dir=out")
    assert not Path("out").exists()


def ends(program, main, *words):
    with pytest.raises(SystemExit) as end:
        command.run(program, main, list(words))
    return end.value.code or 0


def test_a_loss_that_is_not_finite_ends_with_1_and_names_the_last_good_checkpoint(here, capsys, monkeypatch):
    def explode(self):
        self.param_groups[0]["params"][0].data.fill_(1e38)

    monkeypatch.setattr("training.optimizer.Muon.step", explode)
    code = ends(train.PROGRAM, train.main, "data=file", "data.path=text.txt", *SMALL, "run_dir=out")
    error = capsys.readouterr().err
    assert code == 1 and "step 2: loss" in error and "out/checkpoints/step-00000000" in error


def test_a_val_loss_or_weights_that_are_no_numbers_are_never_best_nor_saved(here, capsys, monkeypatch):
    words = ["data=file", "data.path=text.txt", *SMALL, "train.eval_every=1", "train.checkpoint_every=1"]
    huge = ["optimizer.lr=1e30", "optimizer.matrix_lr=1e30", "schedule.warmup_steps=0"]
    assert ends(train.PROGRAM, train.main, *words, *huge, "run_dir=out") == 1
    assert "step 1: val loss nan; the last good checkpoint is out/checkpoints/step-00000000" in (
        capsys.readouterr().err
    )
    state = State()
    assert [state.evaluated(loss) for loss in (2.0, float("nan"), 9.0)] == [True, False, False]
    assert state.best_val_loss == 2.0
    model = GPT(20, ModelConfig(n_layers=1, n_heads=1, d_model=4), PositionConfig())
    model.embed.weight.data[3] = float("nan")
    with pytest.raises(NotFinite, match="no longer finite"):
        checkpoint.save(here / "out2", model, [], State())
    assert not (here / "out2").exists()


def test_new_weights_from_an_old_run(here):
    old = run("run_dir=old")
    words = [*SMALL[4:-1], "data=file", "data.path=text.txt", "init_from=old", "run_dir=new", "train.seed=5"]
    new = train.train(train.configure(words), words, say=lambda line: None)
    first = next(line["val/loss"] for line in metrics(new.folder) if "val/loss" in line)
    assert first == pytest.approx(old.state.best_val_loss, abs=1e-5)


def test_a_changed_text_is_noticed_on_resume(here):
    run("run_dir=out")
    (here / "text.txt").write_text(TEXT.replace("cats", "dogs"), encoding="utf-8")
    with pytest.raises(command.Wrong, match="its text has changed"):
        train.train(train.configure(["resume=out", "train.max_steps=9"]), say=lambda line: None)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("train.target_loss=5.5", "reached train.target_loss=5.5"),
        ("train.max_minutes=0", "decay"),
    ],
)
def test_other_limits_end_a_run_too(here, limit, words):
    result = run(limit, "run_dir=out", "train.max_steps=50", "train.eval_every=1")
    assert words in result.ended and result.state.step < 50


WRONG = {
    "data.path=missing.txt": "missing.txt",
    "data.path=empty.txt": "empty",
    "data.path=words.txt": "model.context_length=16",
    "data.path=folder": "folder",
    "data.path=latin.txt": "UTF-8",
    "model.context_length=4000": "model.context_length=4000",
    "model.d_model=17": "n_heads=2 does not divide model.d_model=17",
    "train.max_steps=-5": "train.max_steps=-5",
    "optimiser=adamw": "did you mean optimizer",
    "position=ropee": "did you mean rope",
    "n_layers=3": "did you mean model.n_layers",
    "train.device=cuda": "train.device=cuda",
    "tokenizer.path=missing.json": "missing.json",
    "resume=nowhere": "nowhere",
    "like=nowhere": "nowhere",
    "init_from=nowhere": "nowhere",
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_typed_wrong_ends_with_2_in_two_lines_and_makes_nothing(here, capsys, word):
    if word == "train.device=cuda" and torch.cuda.is_available():
        pytest.skip("it is right here")
    (here / "empty.txt").touch()
    (here / "words.txt").write_text("only three words")
    (here / "folder").mkdir()
    (here / "latin.txt").write_bytes("café".encode("latin-1") * 500)
    before = sorted(here.rglob("*"))
    code = ends(train.PROGRAM, train.main, "data=file", "data.path=text.txt", *SMALL[:-2], word)
    error = capsys.readouterr().err
    assert code == 2 and WRONG[word] in error and "Traceback" not in error
    assert 1 <= len(error.strip().splitlines()) <= 2
    assert sorted(here.rglob("*")) == before


def test_a_folder_that_holds_a_run_is_not_used_again(here, capsys):
    run("run_dir=out")
    assert ends(train.PROGRAM, train.main, "data=file", "data.path=text.txt", *SMALL, "run_dir=out") == 2
    assert "resume=out" in capsys.readouterr().err


def test_four_runs_started_in_the_same_second_get_four_folders(here):
    from training.folder import new_folder, run_name

    folders = {new_folder(None, ["model=nano", "data.path=我的/小说.txt"]) for _ in range(4)}
    assert len(folders) == 4
    name = run_name(["model.n_layers=3", "prompt=a=b, c", "resume=x", "data.path=" + "x" * 300], 0)
    assert (
        "n_layers-3" in name
        and len(name) <= 100
        and set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-")
    )


def test_a_run_in_training_is_refused_to_another_process(here):
    from training.folder import take_lock

    (here / "run").mkdir()
    with take_lock(here / "run"), pytest.raises(ValueError, match="another process"):
        take_lock(here / "run")
    take_lock(here / "run").close()


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (train.PROGRAM.conf / "experiment").glob("*.yaml"))
)
def test_every_experiment_takes_one_step(here, name):
    words = [f"experiment={name}", "data=file", "data.path=text.txt", "model=nano", "model.context_length=16"]
    words += ["model.d_model=96"]  # which 3, 4 and 6 heads divide
    words += ["train.max_steps=1", "train.batch_size=2", "train.compile=false", "run_dir=out"]
    assert train.train(train.configure(words), words, say=lambda line: None).state.step == 1


def quietly(*words):
    return train.train(train.configure(list(words)), say=lambda line: None)


def test_an_interruption_never_removes_a_run_that_was_there(here, monkeypatch):
    from watch import Watch

    with monkeypatch.context() as patch:  # lost before the first step
        patch.setattr(Watch, "look", lambda *args: (_ for _ in ()).throw(SystemExit(9)))
        with pytest.raises(SystemExit):
            run("run_dir=out")
    (here / "out" / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "look", lambda *args: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            quietly("resume=out")
    assert (here / "out" / "notes.txt").exists()
    whole, resumed = run("run_dir=whole"), quietly("resume=out")
    assert resumed.state.step == 6 and metrics(resumed.folder) == metrics(whole.folder)
    assert curves(resumed.folder) == curves(whole.folder)


def test_a_damaged_checkpoint_is_written_again_when_a_run_comes_to_it(here):
    whole = run("run_dir=out")
    newest = checkpoint.find(whole.folder) / "model.safetensors"
    data = newest.read_bytes()
    newest.write_bytes(data[:5])
    again = quietly("resume=out")
    assert again.state.step == 6 and newest.read_bytes() == data and checkpoint.fault(newest.parent) is None


def test_what_a_power_cut_leaves_in_the_metrics_is_passed_over(here, monkeypatch):
    stop_after(monkeypatch, 3)
    run("run_dir=out")
    monkeypatch.undo()
    monkeypatch.chdir(here)
    kept = metrics(here / "out")
    with open(here / "out" / "metrics.jsonl", "ab") as file:
        file.write(b'\n[]\n{}\n\0\0\0\n\xff\n{\'step\': 4}\n{"step": 5}\n{"st')
    assert quietly("resume=out").state.step == 6
    assert metrics(here / "out")[: len(kept)] == kept


def test_a_full_disk_ends_with_1_and_what_was_saved_stays_sound(here, capsys, monkeypatch):
    from safetensors import SafetensorError

    write, calls = checkpoint.save_file, []

    def fills_up(*args):
        calls.append(args)
        if len(calls) > 1:
            raise SafetensorError("No space left on device (os error 28)")
        write(*args)

    monkeypatch.setattr(checkpoint, "save_file", fills_up)
    code = ends(train.PROGRAM, train.main, "data=file", "data.path=text.txt", *SMALL, "run_dir=out")
    error = capsys.readouterr().err
    assert (
        code == 1
        and "No space left" in error
        and "last good checkpoint is out/checkpoints/step-00000000" in error
    )
    assert [path.name for path in checkpoint.steps(here / "out")] == ["step-00000000"]
    calls.clear()
    monkeypatch.setattr(checkpoint, "save_file", write)
    assert quietly("resume=out").state.step == 6


QUIET = ["log.attention_every=0", "log.sample_every=0", "train.eval_every=100", "optimizer=adamw"]


@pytest.mark.skipif(os.name == "nt", reason="no limits of this kind there")
@pytest.mark.parametrize(
    ("words", "room"),
    [
        (QUIET, 110_000),  # a checkpoint: 70 kB of weights, then 140 kB of the optimizer's memory
        (["train.checkpoint_every=100"], 80_000),  # TensorBoard's file, in which the pictures are
    ],
)
def test_a_file_that_cannot_grow_ends_with_1_and_the_run_goes_on_later(here, words, room):
    import resource

    start = [sys.executable, str(Path(train.__file__)), "data=file", "data.path=text.txt", *SMALL, *words]
    done = subprocess.run(
        [*start, "run_dir=out"], capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]  # above it TensorBoard's thread may say where it stood
    assert "File too large" in last and "the last good checkpoint is out/checkpoints/step-00000000" in last
    assert checkpoint.fault(checkpoint.find(here / "out")) is None
    assert quietly("resume=out").state.step == 6


def test_the_same_run_in_another_process_is_refused_with_2(here, capsys):
    from training.folder import take_lock

    run("run_dir=out")
    with take_lock(here / "out"):
        assert ends(train.PROGRAM, train.main, "resume=out", "train.max_steps=9") == 2
    assert "out is being trained by another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("norm: rmsnorm", "norm: layernorm", "another model"),
        ("name: muon", "name: adamw", "matrix_lr"),
        ("vocab_size: 280", "vocab_size: 290", None),  # the tokenizer of the run is what counts
    ],
)
def test_settings_that_do_not_fit_the_checkpoint_are_refused(here, old, new, answer):
    run("run_dir=out")
    path = here / "out" / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    if answer is None:
        assert quietly("resume=out", "train.max_steps=7").state.step == 7
    else:
        with pytest.raises(command.Wrong, match=answer):
            quietly("resume=out", "train.max_steps=7")


COMBINATIONS = list(
    itertools.product(ENCODINGS, ["fused", "explicit"], ["bpe", "char", "byte"], ["muon", "adamw"])
)


def test_every_position_attention_tokenizer_and_optimizer_trains_and_samples(here, capsys):
    quick = [word for word in SMALL if not word.startswith("log.")]
    quick += ["log.attention_every=0", "log.sample_every=0", "train.max_steps=2", "train.eval_every=2"]
    for number, names in enumerate(COMBINATIONS):
        groups = ("position", "attention", "tokenizer", "optimizer")
        words = [f"{group}={name}" for group, name in zip(groups, names, strict=True)]
        result = run(f"run_dir=r{number}", *words, small=quick)
        assert result.state.step == 2 and result.state.val_loss < 6
        capsys.readouterr()
        assert ends(sample.PROGRAM, sample.main, f"run=r{number}", "max_new_tokens=20", "prompt=The ") == 0
        assert capsys.readouterr().out.startswith("The ")
