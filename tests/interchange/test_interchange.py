"""The same weights in transformers and here say the same, in and out; hostile folders do nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sample
import train
from interchange import __main__ as interchange
from interchange.config import describe, home, is_model_folder
from interchange.folder import read, write
from model.cache import make_cache
from model.config import ModelConfig, PositionConfig
from model.generate import Sampling, generate
from model.gpt import GPT
from tests.conftest import redraw
from tests.test_command import TRAIN, told
from tests.test_sample import QUICK
from tests.test_train import TEXT, ends, run

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

COMMON = {"vocab_size": 67, "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4}
COMMON |= {"max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
LLAMAS = COMMON | {"intermediate_size": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
THEIRS = {
    "gpt2": ("GPT2", COMMON | {"activation_function": "gelu_new"}),
    "gpt2, untied": (
        "GPT2",
        COMMON | {"activation_function": "gelu", "tie_word_embeddings": False, "n_inner": 50},
    ),
    "llama": ("Llama", LLAMAS | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "llama, biased": ("Llama", LLAMAS | {"attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("Llama", LLAMAS | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", LLAMAS | {"head_dim": 10}),
    "qwen3, tied": ("Qwen3", LLAMAS | {"head_dim": 16, "num_key_value_heads": 1}),
    "nanochat": ("NanoChat", LLAMAS | {"final_logit_softcapping": None}),
}
OURS = {  # our settings and the family that they are exported as
    "default": ("qwen3", "rope", {}),
    "tied": ("qwen3", "rope", {"tie_embeddings": True}),
    "no gains": ("qwen3", "rope", {"norm_weight": False, "d_head": 10}),
    "llama": ("llama", "rope", {"qk_norm": False, "embed_norm": False, "tie_embeddings": True}),
    "llama, biased": ("llama", "rope", {"qk_norm": False, "bias": True, "d_head": 14}),
    "nanochat": ("nanochat", "rope", {"mlp": "relu2", "norm_weight": False}),
    "gpt2": (
        "gpt2",
        "learned",
        {"norm": "layernorm", "mlp": "gelu_tanh", "qk_norm": False, "embed_norm": False, "bias": True}
        | {"tie_embeddings": True},
    ),
    "gpt2, bare": (
        "gpt2",
        "learned",
        {"norm": "layernorm", "mlp": "gelu", "qk_norm": False, "embed_norm": False, "norm_weight": False},
    ),
}


def made(name, folder, **more):
    """A redrawn model of theirs, in a folder as they write it."""
    kind, config = THEIRS[name]
    config = getattr(transformers, f"{kind}Config")(**config)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    redraw(model, std=0.2)
    with torch.no_grad():  # GPT-2 calls its norms ln_1
        for name, gain in model.named_parameters():
            gain.add_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    model.tie_weights()
    model.save_pretrained(folder, **more)
    return model


def tokens(n, V=67, seed=3):
    return torch.randint(V, (2, n), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def apart(ours, theirs, ids):
    """How far the logits lie apart, ours computed at once and in pieces, with the cache."""
    whole = theirs(ids).logits
    cache = make_cache(ours.config, len(ids))
    pieces = torch.cat([ours(piece, cache=cache) for piece in ids.split([5, 1, ids.size(1) - 6], 1)], 1)
    assert whole.std() > 0.3  # there is something to compare
    return max((ours(ids) - whole).abs().max().item(), (pieces - whole).abs().max().item())


@pytest.mark.parametrize("name", THEIRS)
def test_a_model_of_theirs_says_the_same_here(name, tmp_path):
    theirs = made(name, tmp_path)
    ours = read(tmp_path)
    assert apart(ours, theirs, tokens(20)) < 1e-4


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_many_files_half_precision_and_older_names(name, tmp_path):
    made(name, tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole = read(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert apart(whole, theirs, tokens(20)) < 1e-4
    theirs.base_model.to(torch.bfloat16).save_pretrained(tmp_path / "half")  # names without their first part
    if name == "gpt2":  # where the head is the table
        half = read(tmp_path / "half")
        for key, value in whole.state_dict().items():
            assert torch.equal(half.state_dict()[key], value.bfloat16().float())


def test_shared_keys_and_values_are_told_and_cuts_change_nothing_within(tmp_path):
    lines, theirs = [], made("qwen3", tmp_path)
    ours = read(tmp_path, lines.append, context_length=9, vocab_size=60)
    assert "2 heads share each key and value" in lines[0]
    assert (ours.config.context_length, ours.vocab_size) == (9, 60)
    ids = tokens(9, 60)
    with torch.no_grad():
        assert (ours(ids) - theirs(ids).logits[:, :, :60]).abs().max() < 1e-4
    made("gpt2", tmp_path / "learned")
    assert read(tmp_path / "learned", context_length=9).position.table.shape == (9, 24)


@pytest.mark.parametrize("name", OURS)
def test_a_model_of_ours_says_the_same_there(name, tmp_path):
    family, position, changed = OURS[name]
    shape = {"n_layers": 2, "n_heads": 4, "d_model": 24, "context_length": 40, "d_ff": 36}
    ours = GPT(67, ModelConfig(**shape | changed), PositionConfig(position))
    redraw(ours, std=0.2).eval()
    tmp_path /= "new"
    write(ours, tmp_path, 0)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    config = theirs.config
    assert (config.model_type, config.max_position_embeddings, config.bos_token_id) == (family, 40, 0)
    assert apart(ours, theirs, tokens(20)) < 1e-4
    prompt = tokens(4)[:1]
    settings = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 20, "do_sample": False}
    written = theirs.generate(prompt, **settings)
    drawn = [int(id) for id in generate(ours, prompt, 20, Sampling(0.0), end=0)]
    assert written[0, 4:].tolist() == drawn and len(drawn) > 3
    assert apart(read(tmp_path), theirs, tokens(20)) < 1e-4  # and back


@pytest.mark.parametrize(
    ("position", "changed", "answer"),
    [
        ("alibi", {}, "nearest is qwen3, but for position.name=alibi"),
        ("rope", {"norm": "layernorm"}, "qwen3, but for model.norm=layernorm"),
        ("rope", {"bias": True}, "model.bias=true"),
        ("rope", {"bigram_embedding": True}, "qwen3, but for model.bigram_embedding=true"),
        ("learned", {"mlp": "gelu", "qk_norm": False, "norm": "layernorm"}, "gpt2, but for model.embed"),
        ("rope", {"mlp": "relu2"}, "qwen3, but for model.mlp=relu2"),
        ("rope", {"qk_norm": False, "n_heads": 5, "d_head": 4, "bias": True}, "for model.d_head=4"),
    ],
)
def test_a_model_without_a_home_is_refused_by_its_settings(position, changed, answer, tmp_path):
    shape = {"n_layers": 1, "n_heads": 2, "d_model": 16, "context_length": 8}
    model = GPT(9, ModelConfig(**shape | changed), PositionConfig(position))
    with pytest.raises(ValueError, match=answer):
        home(model.describe())
    with pytest.raises(ValueError, match=answer):
        write(model, tmp_path / "new", None)
    assert not (tmp_path / "new").exists()


# Refusals ─────────────────────────────────────────────────────────────────────────────────────────────────


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


REFUSED = [
    ({"model_type": "mamba"}, "model_type=mamba: not one of qwen3 llama nanochat gpt2"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, '"yarn"'),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 'rope_scaling={"type": "linear"'),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_scaling": "linear"}, "'str'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ({"use_sliding_window": True}, "use_sliding_window=True"),
    ({"attention_bias": True}, "attention_bias=True"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"hidden_act": "gelu"}, "hidden_act=gelu"),
    ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
    ({"num_key_value_heads": 4}, "k_proj.weight is [20, 24], which does not fit config.json"),
    ({"num_hidden_layers": "2"}, "num_hidden_layers=2"),
    ({"num_hidden_layers": 10**9}, "model.n_layers=1000000000"),
    ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight is in no file"),
    ({"num_hidden_layers": 1}, "model.layers.1.input_layernorm.weight has no place in this model"),
    ({"hidden_size": 65_536, "intermediate_size": 2**20}, "config.json speaks of"),
    ({"vocab_size": 2**24}, "config.json speaks of"),
    ({"vocab_size": 10**12}, "vocab_size=1000000000000"),
    ({"max_position_embeddings": 2**20, "head_dim": 1024}, "config.json speaks of"),
    ({"vocab_size": 66}, "embed_tokens.weight is [67, 24], which does not fit config.json"),
]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3")
    made("qwen3", folder)
    return folder


@pytest.mark.parametrize(("values", "answer"), REFUSED, ids=str)
def test_what_has_no_place_here_is_refused_by_name(qwen3, values, answer):
    config = qwen3 / "config.json"
    before = config.read_text()
    try:
        change(qwen3, **values)
        with pytest.raises(ValueError) as refused:
            read(qwen3)
    finally:
        config.write_text(before)
    assert answer in str(refused.value) and str(refused.value).startswith(str(qwen3))


def test_of_other_families_too(tmp_path):
    made("nanochat", tmp_path / "n")
    change(tmp_path / "n", final_logit_softcapping=15.0)
    made("gpt2", tmp_path / "g")
    change(tmp_path / "g", scale_attn_by_inverse_layer_idx=True)
    made("llama", tmp_path / "l")
    change(tmp_path / "l", mlp_bias=True)
    answers = {"n": "final_logit_softcapping=15.0", "g": "inverse", "l": "mlp_bias=False True"}
    for folder, answer in answers.items():
        with pytest.raises(ValueError, match=answer):
            describe(tmp_path / folder)


@pytest.mark.parametrize("name", ["../out.safetensors", "/out.safetensors", "a\\b.safetensors", "model.bin"])
def test_an_index_stays_inside_its_folder(tmp_path, name):
    made("gpt2", tmp_path / "in", max_shard_size="8KB")
    made("gpt2", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "out.safetensors")
    index = tmp_path / "in" / "model.safetensors.index.json"
    places = json.loads(index.read_text())
    places["weight_map"]["transformer.wte.weight"] = name
    index.write_text(json.dumps(places))
    with pytest.raises(ValueError, match="no safetensors file inside the folder"):
        read(tmp_path / "in")


def test_pickles_and_code_are_left_alone(tmp_path):
    theirs = made("gpt2", tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    change(tmp_path, auto_map={"AutoModelForCausalLM": "evil.Model"})
    assert apart(read(tmp_path), theirs, tokens(20)) < 1e-4
    assert "evil" not in sys.modules
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pickled.*save_pretrained"):
        read(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"there is no model\.safetensors"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense" + bytes(60_000))
    with pytest.raises(ValueError, match="deserializing header"):
        read(tmp_path)


def test_settings_are_read_without_torch(qwen3):
    code = f"""
import sys
from pathlib import Path
from interchange.config import describe
print(describe(Path({str(qwen3)!r})).model.d_head, "torch" in sys.modules, "numpy" in sys.modules)
"""
    root = Path(train.__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout == "10 False False\n", done.stderr


# The programs ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text, one with a model of theirs and its tokenizer, a run, and that run exported."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CLEARHEAD_CACHE", str(folder / "prepared"))
        Path("text.txt").write_text(TEXT, encoding="utf-8")
        run("run_dir=runs/own", small=QUICK)
        assert interchange.main(["export", "runs/own", "there"]) == 0
    return folder


def test_a_run_goes_out_with_tokenizer_and_card(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert is_model_folder(Path("there")) and not is_model_folder(Path("runs/own"))
    tokenizer = transformers.AutoTokenizer.from_pretrained("there")
    model = transformers.AutoModelForCausalLM.from_pretrained("there")
    ids = tokenizer(TEXT[:40]).input_ids
    from data.tokenizer import Tokenizer

    assert ids == Tokenizer.load("runs/own/tokenizer.json").encode(TEXT[:40]).tolist()
    assert tokenizer.decode(ids) == TEXT[:40] and tokenizer.model_max_length == 16
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == model.generation_config.eos_token_id
    prompt = tokenizer("The 3", return_tensors="pt")
    theirs = model.generate(**prompt, max_new_tokens=10, do_sample=False)
    capsys.readouterr()
    words = ["run=runs/own", "prompt=The 3", "temperature=0", "max_new_tokens=10"]
    assert ends(sample.PROGRAM, sample.main, *words) == 0
    assert capsys.readouterr().out == tokenizer.decode(theirs[0]) + "\n"
    card = Path("there/README.md").read_text(encoding="utf-8")
    loss = json.loads(Path("runs/own/metrics.jsonl").read_text().splitlines()[-1])["val/loss"]
    assert f"tokens of file, in 6 steps, to a validation loss of {loss:.4f} nats" in card
    assert str(place) not in card and "runs" not in card
    assert interchange.main(["export", "runs/own", "there"]) == 2 == interchange.main(["export"])
    assert "File exists" in capsys.readouterr().err
    assert interchange.main(["export", "own", "elsewhere"]) == 2 and not Path("elsewhere").exists()
    assert capsys.readouterr().err == "interchange: own: no such folder (did you mean runs/own?)\n"


def test_a_folder_of_theirs_is_sampled_and_trained_on(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    words = ["run=there", "prompt=The 3", "temperature=0", "max_new_tokens=10"]
    assert ends(sample.PROGRAM, sample.main, *words) == 0
    there = capsys.readouterr().out
    ends(sample.PROGRAM, sample.main, "run=runs/own", *words[1:])
    assert capsys.readouterr().out == there
    assert ends(sample.PROGRAM, sample.main, "run=there", "max_new_tokens=3") == 0
    small = [word for word in QUICK if not word.startswith("model.")]
    words = ["init_from=there", "model.context_length=8", "run_dir=runs/more", "train.max_steps=1"]
    result = run(*words, small=small)
    from model.weights import load
    from training.checkpoint import find

    begun = load(find(result.folder, "0"))
    assert begun.config.context_length == 8
    for name, tensor in read(Path("there")).state_dict().items():
        assert torch.equal(begun.state_dict()[name], tensor), name
    assert "tokenizer comes with" in told(TRAIN, "init_from=there", "tokenizer=char")
    assert "model.n_layers comes with" in told(TRAIN, "init_from=there", "model.n_layers=3")
    assert "model.context_length=17: must be between 1 and 16" in told(
        TRAIN, "init_from=there", "model.context_length=17"
    )


def test_metrics_are_a_table_in_one_line(place):
    import pandas

    table = pandas.read_json(place / "runs/own/metrics.jsonl", lines=True)
    assert table["train/loss"].count() == 6 and table["step"].max() == 6
    assert table.set_index("step")["val/loss"].dropna().index.tolist() == [0, 3, 6]
