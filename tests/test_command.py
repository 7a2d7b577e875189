"""The command line: what is typed arrives as it was meant, or is refused in one or two lines."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import command
import sample
import train
from settings import Wrong, leaves

ROOT = Path(train.__file__).parent
TRAIN = command.Program(train.__file__, "Train.", train.TrainConfig, "train")
SAMPLE = command.Program(sample.__file__, "Sample.", sample.SampleConfig)


def told(program: command.Program, *words: str) -> str:
    """What the user reads when these words are refused."""
    with pytest.raises(Wrong) as refused:
        command.configure(program, list(words))
    return str(refused.value)


@pytest.fixture
def program(tmp_path):
    """A program of its own in an empty folder, with a copy of conf/; experiments can be added to it."""
    (tmp_path / "conf").mkdir()
    for file in (ROOT / "conf").rglob("*.yaml"):
        copy = tmp_path / "conf" / file.relative_to(ROOT / "conf")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return command.Program(str(tmp_path / "train.py"), "Train.", train.TrainConfig, "train")


# Right words ─────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_typed_is_what_the_files_say():
    config = command.configure(TRAIN, [])
    assert (config.model.n_layers, config.model.d_head, config.optimizer.matrix_lr) == (4, 32, 0.05)
    assert config.position == train.PositionConfig("rope", 1_000.0)


def test_words_beat_experiments_beat_root_beats_groups(program):
    (program.conf / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [override /model: tiny]\nmodel: {n_heads: 3, dropout: 0.1}\n"
    )
    config = command.configure(program, ["experiment=mine", "model.dropout=0.2"])
    assert (config.model.n_layers, config.model.n_heads, config.model.dropout) == (5, 3, 0.2)


def test_of_a_key_typed_twice_the_last_counts():
    config = command.configure(TRAIN, ["model=tiny", "train.seed=1", "model=small", "train.seed=2"])
    assert (config.model.n_layers, config.train.seed) == (6, 2)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("optimizer.lr=1e-5", 1e-5),
        ("optimizer.lr=.5", 0.5),
        ("optimizer.lr=1", 1.0),
        ("train.patience=null", None),
        ("train.max_minutes=2", 2.0),
        ("log.histograms=true", True),
        ("train.compile=true", "true"),
        ("train.batch_size=${train.keep}", 2),
        ("data.column=正文", "正文"),
        ("data.name=a/b-c", "a/b-c"),
    ],
)
def test_values_take_the_type_of_their_setting(word, value):
    key = word.partition("=")[0]
    room, name = key.split(".")
    found = getattr(getattr(command.configure(TRAIN, [word]), room), name)
    assert (found, type(found)) == (value, type(value))


AWKWARD = [
    "???",
    "${oc.env:HOME}",
    "\\${x}",
    '"quoted"',
    "'",
    "",
    " spaces ",
    "true",
    "null",
    "1e-5",
    "a=b,c",
]
AWKWARD += ["Hi, there! 你好 & #1 {a=b}", "two\nlines\r\n", "--help", "-m", "[1,", "\\n", "\x00\x1b", "😀é"]


@pytest.mark.parametrize("text", AWKWARD)
def test_texts_arrive_as_they_were_typed(text):
    assert command.configure(SAMPLE, [f"prompt={text}"]).prompt == text


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_arrives(text):
    assert command.configure(SAMPLE, [f"run={text}"]).run == text


def test_only_stop_and_separator_know_escapes():
    assert command.configure(SAMPLE, [r"stop=\n\t\x"]).stop == "\n\t\\x"
    assert command.configure(SAMPLE, [r"prompt=\n"]).prompt == r"\n"
    assert command.configure(TRAIN, [r"data.separator=\n\n"]).data.separator == "\n\n"
    assert command.configure(TRAIN, [r"data.path=C:\new"]).data.path == r"C:\new"


def test_every_text_key_is_a_setting_of_text():
    known = leaves(train.TrainConfig) | leaves(sample.SampleConfig)
    assert {known[key] for key in command.TEXTS} <= {str, str | None}


# Wrong words ─────────────────────────────────────────────────────────────────────────────────────────────

WRONG = [  # what is typed → what the answer must contain
    ("lr=1e-3", "lr: no such setting (did you mean optimizer.lr?)"),
    ("n_layers=3", "did you mean model.n_layers?"),
    ("steps=3", "did you mean train.max_steps?"),
    ("batch=3", "did you mean train.batch_size?"),
    ("train.lr=3", "did you mean optimizer.lr?"),
    ("trian.max_steps=3", "did you mean train.max_steps?"),
    ("model.n_layer=3", "(did you mean model.n_layers?)\n  model: n_layers n_heads d_model"),
    ("experimnt=smoke", "did you mean experiment?"),
    ("modle=nano", "did you mean model?"),
    ("zzz=1", "settings: model position"),
    ("a.b.c.d=1", "a.b.c.d: no such setting"),
    ("=", "'=': not a setting"),
    ("=3", "'=3': not a setting"),
    ("", "'': not a setting"),
    ("nano", "settings are written key=value; see --help"),
    ("model", "'model': not a setting"),
    ("a\nb=3", r"'a\nb=3': not a setting"),
    ("--model", "--model: not an option"),
    ("-x", "-x: not an option"),
    ("+foo=1", "+foo=1: + ++ ~ and @"),
    ("++model.foo=1", "++model.foo=1: + ++ ~ and @"),
    ("~model", "~model: + ++ ~ and @"),
    ("model@x=nano", "model@x=nano: + ++ ~ and @"),
    ("hydra.run.dir=x", "hydra.run.dir: no such setting"),
    ("hydra/launcher=joblib", "hydra/launcher: no such setting"),
    ("model=nanoo", "model=nanoo: no such choice (did you mean nano?)"),
    ("model=nanoo", "model: gpt2 nano small tiny"),
    ("model=", "model=: no such choice"),
    ("model=null", "model=null: no such choice"),
    ("model=3", "model=3: no such choice"),
    ("model=[nano,tiny]", "several values need -m"),
    ("model=nano,tiny", "several values need -m"),
    ("model=../train", "model=../train: no such choice"),
    ("position=rotary", "position: alibi learned none rope sinusoidal"),
    ("experiment=smok", "did you mean smoke?"),
    ("experiment=", "experiment=: no such choice"),
    ("train=3", "train: not one setting but several; write train.max_steps=..."),
    ("log={histograms: true}", "log: attention_every"),
    ("model.n_layers=abc", "model.n_layers=abc: must be a whole number"),
    ("model.n_layers=", "model.n_layers=: must be a whole number"),
    ("model.n_layers=null", "model.n_layers=null: must be a whole number"),
    ("model.n_layers=[1,2]", "must be a whole number"),
    ("model.n_layers={a: 1}", "must be a whole number"),
    ("model.n_layers=2.5", "model.n_layers=2.5: must be a whole number"),
    ("train.max_steps=1e4", "train.max_steps=1e4: must be a whole number"),
    ("train.max_steps=true", "train.max_steps=true: must be a whole number"),
    ("optimizer.lr=fast", "optimizer.lr=fast: must be a number"),
    ("model.bias=maybe", "model.bias=maybe: must be true or false"),
    ("data.name=[a]", "data.name=[a]: must be text"),
    ("model.n_layers=2,3", "model.n_layers=2,3: several values need -m"),
    ("model.n_layers=range(1,4)", "several values need -m"),
    ("model.n_layers=(", "model.n_layers=(: cannot be read"),
    ("model.n_layers=３", "model.n_layers=３: cannot be read"),
    ("model.n_layers=\n3", "cannot be read"),
    ("data.column=hi!", """special characters stand in quotes: 'data.column="..."'"""),
    ("model.n_layers=${foo}", "model.n_layers"),
    ("model.n_layers='${foo'", "model.n_layers"),
    ("train.seed=???", "train.seed"),
    ("train.max_steps=-1", "train.max_steps=-1: must be at least 1"),
    ("model.dropout=nan", "model.dropout=nan"),
    ("model.dropout=inf", "model.dropout=inf"),
    ("model.d_model=130", "model.n_heads=4 does not divide model.d_model=130"),
    ("model.norm=batchnorm", "not one of rmsnorm layernorm"),
    ("train.device=gpu", "not one of auto cpu cuda mps"),
    ("position=alibi position.theta=3", "only position=rope has it"),
    ("model.d_model=20 model.d_head=5", "model.d_head=5 is odd"),
    ("data.path=", "data.path= is empty"),
    ("data.column=", "data.column= is empty"),
    ("data.path=\udcff", "not UTF-8 text"),
    ("resume=nowhere", "resume=nowhere: no such folder"),
    ("init_from=conf", "init_from=conf: holds no run of this project"),
    ("like=nowhere", "like=nowhere: no such folder"),
    ("resume=a init_from=b", "resume= and init_from= exclude each other"),
]


@pytest.mark.parametrize(("typed", "answer"), WRONG)
def test_wrong_words_are_answered_in_two_lines(typed, answer):
    words = typed.split(" ") if " position" in typed or " model" in typed or " init" in typed else [typed]
    said = told(TRAIN, *words)
    assert answer in said
    assert said.count("\n") <= 1 and "Traceback" not in said and "full_key" not in said


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("tempertaure=1", "did you mean temperature?"),
        ("top_k=many", "top_k=many: must be a whole number"),
        ("model=nano", "settings: run checkpoint prompt"),
        ("stop=", "stop= is empty"),
    ],
)
def test_wrong_words_of_a_program_without_files(typed, answer):
    assert answer in told(SAMPLE, typed)


HEAD = "# @package _global_\n"


@pytest.mark.parametrize(
    ("file", "answer"),
    [
        (HEAD + "model: {n_layer: 3}", "model.n_layer: no such setting (did you mean model.n_layers?)"),
        (HEAD + "model: {n_layer: 3}", "\n  model: n_layers n_heads"),
        (HEAD + "lr: 3", "lr: no such setting (did you mean optimizer.lr?)"),
        (HEAD + "model: {n_layers: abc}", "model.n_layers=abc: must be a whole number"),
        (HEAD + "model: 3", "ModelConfig"),
        (HEAD + "model: [1", "expected ',' or ']'"),
        (HEAD + "model:\n\tn_layers: 1", "line 3: found character '\\t'"),
        (HEAD + "model: {d_ff: 1, d_ff: 2}", "line 2: found duplicate key d_ff"),
        (HEAD + "defaults: [override /model: nanoo]", "model=nanoo: no such choice (did you mean nano?)"),
        (
            HEAD + "defaults: [override /modle: nano]",
            "modle: no such group (did you mean model?)\n  groups: ",
        ),
        (HEAD + "defaults: [smok]", "experiment=smok: no such choice (did you mean smoke?)"),
        (HEAD + "defaults: [bad]", "refers to itself"),
        (HEAD + "defaults: {a: 3}", "defaults must be a list"),
        (HEAD + "- a", "Cannot merge"),
        (HEAD + "train: {seed: '${nowhere}'}", "train.seed: Interpolation key 'nowhere' not found"),
        ("model: {n_layers: 3}", "its first line is not `# @package _global_`"),
        ("", "has no settings"),
    ],
)
def test_a_wrong_experiment_is_named(program, file, answer):
    (program.conf / "experiment" / "bad.yaml").write_text(file + "\n")
    said = told(program, "experiment=bad")
    assert said.startswith("conf/experiment/bad.yaml: ") and answer in said
    assert said.count("\n") <= 1


def test_the_wrong_one_of_word_and_file_is_named(program):
    (program.conf / "experiment" / "good.yaml").write_text(HEAD + "model: {n_layers: 3}\n")
    assert told(program, "experiment=good", "model.n_layers=x").startswith("model.n_layers=x: ")
    (program.conf / "experiment" / "bad.yaml").write_text(HEAD + "model: {n_layers: x}\n")
    assert told(program, "experiment=bad", "model.n_layers=3").startswith("conf/experiment/bad.yaml: ")
    (program.conf / "model" / "nano.yaml").write_text("n_layers: x\n")
    assert told(program).startswith("conf/model/nano.yaml: model.n_layers=x")


# Sweeps ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["train.seed=1,2", "model=nano,tiny"], "1 nano|1 tiny|2 nano|2 tiny"),
        (["train.seed=range(1,4)"], "1|2|3"),
        (["optimizer.lr=choice(0.1,1e-3)"], "0.1|0.001"),
        (["model=glob(*n*, exclude=tiny)"], "nano"),
        (["train.seed=1,2", "train.seed=3"], "3"),
        (["data.path=a.txt,b.txt"], "a.txt|b.txt"),
        (["data.path='我 a','b,c'"], "我 a|b,c"),
        (["data.path=我.txt"], "我.txt"),
        (['data.path="a, b"'], "a, b"),
        (["run_dir=${x}", "train.seed=5"], "${x} 5"),
    ],
)
def test_a_sweep_is_every_combination(words, jobs):
    found = [" ".join(word.partition("=")[2] for word in job) for job in command.sweep(TRAIN, words)]
    assert found == jobs.split("|")


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("model=glob(x*)", "matches no file"),
        ("train.seed=glob(*)", "matches no file"),
        ("sed=1,2", "train.seed?"),
        ("optimizer.lr=interval(0,1)", "cannot be enumerated"),
        ("model=nano,(", "cannot be read"),
    ],
)
def test_a_sweep_that_cannot_be(word, answer):
    with pytest.raises(Wrong) as refused:
        command.sweep(TRAIN, [word])
    assert answer in str(refused.value)
