"""sample.py: what it prints, and what it says where it cannot."""

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sample
from tests.test_train import SMALL, TEXT, ends, run

QUICK = [word for word in SMALL if not word.startswith(("log.", "tokenizer."))]
QUICK += ["log.attention_every=0", "log.sample_every=0"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a text and two runs in runs/: `bytes`, and `chars`, the newer one."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CLEARHEAD_CACHE", str(folder / "prepared"))
        Path("text.txt").write_text(TEXT, encoding="utf-8")
        run("run_dir=runs/bytes", "tokenizer=byte", small=QUICK)
        run("run_dir=runs/chars", "tokenizer=char", small=QUICK)
    return folder


@pytest.fixture
def say(trained, monkeypatch, capsys):
    """say(word, ...) → (exit code, standard output, standard error)."""
    monkeypatch.chdir(trained)

    def program(*words):
        capsys.readouterr()
        code = ends(sample.PROGRAM, sample.main, *words)
        return code, *capsys.readouterr()

    return program


@pytest.mark.parametrize(
    "prompt", ["The cats", "从前有座山", "a \"b\" 'c' = $x !", "true", "1e-5", " ", "two\nlines\n"]
)
def test_the_text_begins_with_the_prompt_whatever_it_is(say, prompt):
    code, out, _ = say("run=runs/bytes", f"prompt={prompt}", "max_new_tokens=10")
    assert code == 0 and out.startswith(prompt) and len(out) > len(prompt) + 1


def test_a_prompt_from_a_file_or_standard_input_loses_one_newline(say, trained, monkeypatch):
    (trained / "prompt.txt").write_bytes("从前\n\n".encode())
    plain = say("run=runs/bytes", "prompt=从前\n")
    assert say("run=runs/bytes", "prompt_file=prompt.txt") == plain
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("从前\n\n".encode())))
    assert say("run=runs/bytes", "prompt_file=-") == plain


def test_the_newest_run_is_the_default_and_one_without_a_sound_checkpoint_is_skipped(say, trained):
    assert "runs/chars" in say()[2]
    assert say() == say("run=latest") == say("run=runs/chars")
    (trained / "runs" / "torn" / "checkpoints").mkdir(parents=True)
    (trained / "runs" / "torn" / "checkpoints" / "last").write_text("step-00000003")
    code, _, error = say("max_new_tokens=5")
    shutil.rmtree(trained / "runs" / "torn")
    assert code == 0 and "skipped" in error and "runs/chars" in error


def test_the_same_seed_writes_the_same_text_and_the_first_of_many(say):
    one, again, other = (say(f"seed={seed}")[1] for seed in (1, 1, 2))
    assert one == again != other
    many = say("num_samples=3")[1].split("\n---\n")
    assert len(many) == 3 and many[0] == one.rstrip("\n") and len(set(many)) == 3


def test_the_cache_changes_nothing_past_the_context(say):
    settings = ("max_new_tokens=70", "temperature=0", "run=runs/bytes")
    assert say(*settings)[1] == say(*settings, "cache=false")[1]


def test_text_can_go_to_a_file_and_stop_at_a_text(say, trained):
    _, out, _ = say("run=runs/bytes", "max_new_tokens=60")
    code, nothing, _ = say("run=runs/bytes", "max_new_tokens=60", "out=text.out")
    assert code == 0 and nothing == "" and (trained / "text.out").read_text(encoding="utf-8") == out
    stop = out[10:12]
    shorter = say("run=runs/bytes", "max_new_tokens=60", f"stop={stop}")[1]
    assert shorter == out.split(stop)[0] + "\n"


def test_maps_of_what_was_written_are_kept_for_tensorboard(say, trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    code, _, error = say("attention=true", "max_new_tokens=8")
    (folder,) = (trained / "runs" / "chars" / "samples").iterdir()
    tags = EventAccumulator(str(folder)).Reload().Tags()["images"]
    assert code == 0 and "samples" in error and len(tags) == 2


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("Once upon a time", "did you mean prompt='Once upon a time'?"),
        ("temperature=-1", "temperature=-1.0: must be between 0"),
        ("temperature=inf", "temperature=inf"),
        ("top_p=2", "top_p=2.0: must be between 0 and 1"),
        ("top_p=nan", "top_p=nan"),
        ("top_k=-1", "top_k=-1"),
        ("min_p=5", "min_p=5.0: must be between 0 and 1"),
        ("repetition_penalty=0", "repetition_penalty=0"),
        ("max_new_tokens=0", "max_new_tokens=0"),
        ("prompt=𠮷 and 🎉", "'🎉' '𠮷'"),
        ("prompt_file=missing.txt", "missing.txt"),
        ("prompt_file=latin.txt", "not UTF-8 text at byte 3"),
        ("run=runs/none", "run=runs/none: no such folder"),
        ("run=chars", "run=chars: no such folder (did you mean runs/chars?)"),
        ("run=text.txt", "text.txt"),
        ("checkpoint=7", "best last 0 3 6"),
        ("out=no/such/folder/x", "out=no/such/folder/x"),
        ("tempratur=1", "did you mean temperature"),
    ],
)
def test_what_cannot_be_is_said_in_two_lines(say, trained, word, answer):
    (trained / "latin.txt").write_bytes(b"caf\xe9")
    code, out, error = say(word)
    lines = [line for line in error.splitlines() if not line.startswith("runs/")]
    assert code == 2 and answer in error and out == "" and "Traceback" not in error and len(lines) <= 2


def test_without_any_run_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert ends(sample.PROGRAM, sample.main) == 2
    assert "run train.py first" in capsys.readouterr().err


def test_a_tokenizer_of_another_run_is_refused(say, trained):
    shutil.copytree(trained / "runs" / "chars", trained / "mixed")
    shutil.copy(trained / "runs" / "bytes" / "tokenizer.json", trained / "mixed")
    code, _, error = say("run=mixed")
    shutil.rmtree(trained / "mixed")
    assert code == 2 and "tokenizer.json has 257 tokens" in error


def test_a_reader_that_has_enough_is_no_fault(trained):
    command = f"{sys.executable} {sample.__file__} max_new_tokens=400 | head -c 3"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=trained, capture_output=True, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr and len(done.stdout) == 3


LOADED = """
import runpy, sys
sys.path.insert(0, ROOT)
sys.argv = ["sample.py", "run=runs/bytes", "max_new_tokens=5"]
try:
    runpy.run_path(ROOT + "/sample.py", run_name="__main__")
except SystemExit as ended:
    assert not ended.code
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def test_only_what_sampling_needs_is_imported(trained):
    """So that the first characters come soon: what is named here takes seconds."""
    code = LOADED.replace("ROOT", repr(str(Path(sample.__file__).parent)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=trained)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split("\n"))
    slow = {"datasets", "pyarrow", "tensorboard", "matplotlib", "torch._dynamo", "torch._inductor", "sympy"}
    assert "model.generate" in loaded and not loaded & slow
