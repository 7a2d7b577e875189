"""The decoder: causal for every encoding, equal on every path, the sizes it promises."""

import itertools

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from model.position import ENCODINGS
from model.weights import load, save
from tests.conftest import redraw

PATHS = list(itertools.product(ENCODINGS, ["fused", "explicit"]))


@pytest.mark.parametrize(("position", "attention"), PATHS)
def test_no_logit_depends_on_a_later_token_and_each_on_every_earlier_one(make_gpt, position, attention):
    model = make_gpt(position, attention)
    ids = torch.randint(50, (1, 9))
    embedded = model.embed(ids).detach().requires_grad_()
    model.embed.forward = lambda _: embedded  # the gradient with respect to what the blocks are given
    logits = model(ids)
    for t in range(9):
        gradient = torch.autograd.grad(logits[0, t].square().sum(), embedded, retain_graph=True)[0][0]
        assert (gradient[t + 1 :] == 0).all()
        assert (gradient[: t + 1].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("position", ENCODINGS)
def test_fused_and_explicit_models_agree(make_gpt, position):
    fused, explicit = make_gpt(position, "fused"), make_gpt(position, "explicit")
    ids, record = torch.randint(50, (3, 12)), []
    torch.testing.assert_close(fused(ids), explicit(ids), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(fused(ids, record=record), explicit(ids), atol=0, rtol=0)
    maps = fused.attention_maps(ids)
    assert maps.shape == (2, 3, 2, 12, 12) and torch.equal(maps, torch.stack(record))
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 3, 2, 12))
    assert (maps.triu(1) == 0).all()


def test_without_positions_only_the_mask_tells_order(make_gpt):
    """The last logit of a 1-layer model without positions is blind to the order of what came before."""
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    shuffled = torch.tensor([[3, 1, 4, 2, 5]])
    for position in ENCODINGS:
        model = make_gpt(position, n_layers=1).double()
        same = torch.allclose(model(ids)[:, -1], model(shuffled)[:, -1], atol=1e-12)
        assert same is (position == "none")


VARIANTS = [
    dict(mlp="relu2"),
    dict(mlp="gelu"),
    dict(mlp="gelu_tanh", norm="layernorm", bias=True, tie_embeddings=True, qk_norm=False, embed_norm=False),
    dict(norm="layernorm", norm_weight=False),
    dict(norm_weight=False, mlp="relu2"),
    dict(d_head=6, d_ff=10),
    dict(qk_norm=False),
    dict(bigram_embedding=True),
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_folder_gives_the_same_model_back(make_gpt, tmp_path, settings):
    for position in ("rope", "learned"):
        model, ids = make_gpt(position, **settings), torch.randint(50, (2, 12))
        save(model, tmp_path)
        again = load(tmp_path)
        assert torch.equal(model(ids), again(ids))
        assert again.describe() == model.describe()
        assert all(parameter.requires_grad for parameter in again.parameters())


def test_weights_of_another_type_are_refused(make_gpt, tmp_path):
    save(make_gpt(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for dtype, name in ((torch.bfloat16, "BF16"), (torch.int64, "I64")):
        save_file(tensors | {"norm.weight": tensors["norm.weight"].to(dtype)}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=rf"norm\.weight is {name} .* F32 .* by config\.json"):
            load(tmp_path)


def test_pairs_are_looked_up_by_both_tokens_and_refused_for_large_vocabularies(make_gpt):
    pairs = make_gpt(vocab_size=7, bigram_embedding=True).pairs
    ids = torch.tensor([[3, 5, 3]])
    rows = torch.tensor([[7 * 7 + 3, 3 * 7 + 5, 5 * 7 + 3]])  # nothing comes before the first
    assert torch.equal(pairs(ids), pairs.weight[rows])
    assert torch.equal(pairs(ids[:, 1:], ids[:, :1]), pairs.weight[rows[:, 1:]])
    with pytest.raises(ValueError, match=r"bigram_embedding=true: 513² pairs are too many"):
        make_gpt(vocab_size=513, bigram_embedding=True)


def test_token_dropout_drops_all_features_of_a_token(make_gpt):
    drop, x = make_gpt(token_dropout=0.25).blocks[0].dropout, torch.full((40, 50, 6), 3.0)
    assert torch.equal(drop.eval()(x), x)
    torch.manual_seed(0)
    dropped = drop.train()(x)
    assert torch.equal(dropped, dropped[..., :1].expand_as(x))
    assert dropped.unique().tolist() == [0.0, 4.0]  # 3 / (1 − 1/4)
    assert (dropped[..., 0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.04)
    assert 0 < (dropped[0, :, 0] == 0).sum() < 50  # some tokens of every text


def test_every_weight_reaches_the_logits(make_gpt):
    for settings in [{}, *VARIANTS]:
        model = make_gpt("learned", **settings).train()
        model(torch.randint(50, (2, 12))).square().sum().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(("damage", "message"), [
    ("truncate", "no readable model"),
    ("json", "no readable model"),
    ("layers", "900 layers by config.json"),
    ("width", "in the file"),
    ("missing", "no readable model"),
    ("vocabulary", "in the file"),
])
def test_a_damaged_folder_is_a_value_error(make_gpt, tmp_path, damage, message):
    save(make_gpt(), tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:-100])
    if damage == "json":
        config.write_text("{")
    if damage == "layers":
        config.write_text(config.read_text().replace('"n_layers": 2', '"n_layers": 900'))
    if damage == "width":
        config.write_text(config.read_text().replace('"d_model": 16', '"d_model": 65536'))
    if damage == "missing":
        weights.unlink()
    if damage == "vocabulary":
        config.write_text(config.read_text().replace('"vocab_size": 50', '"vocab_size": 10000000000'))
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_the_untrained_model_says_nothing():
    model = GPT(50, ModelConfig(), PositionConfig())
    assert (model(torch.randint(50, (1, 5))) == 0).all()


def test_scores_with_qk_norm_are_bounded_and_the_gain_lifts_the_bound():
    for d_head in (8, 32, 128):
        model = GPT(50, ModelConfig(d_model=d_head, n_heads=1, n_layers=1), PositionConfig("none"))
        attention = model.blocks[0].attention
        x = 100 * torch.randn(1, 500, d_head)
        qkv = attention.qkv(x).view(1, 500, 3, d_head)
        q, k = attention.q_norm(qkv[:, :, 0]), attention.k_norm(qkv[:, :, 1])
        assert (q @ k.mT / d_head**0.5).abs().max() <= 128**0.5 * 1.001
        torch.testing.assert_close(q.norm(dim=-1), torch.full((1, 500), 128**0.5), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("ids", "message"), [
    (torch.tensor([[1, 50]]), "id 50 is outside the vocabulary of 50"),
    (torch.tensor([[-1, 2]]), "id -1 is outside the vocabulary of 50"),
    (torch.zeros(1, 0, dtype=torch.long), r"\(1, 0\)"),
    (torch.zeros(3, dtype=torch.long), r"\(3,\)"),
    (torch.zeros(1, 3), r"torch.float32"),
])
def test_ids_that_cannot_work_are_refused_with_the_numbers(make_gpt, ids, message):
    with pytest.raises(ValueError, match=message):
        make_gpt()(ids)


def test_tied_weights_are_one_tensor_counted_once(make_gpt):
    tied, untied = make_gpt(tie_embeddings=True), make_gpt()
    count = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == 50 * 16
    assert "head.weight" not in tied.state_dict()


def test_redraw_leaves_no_zeros(make_gpt):
    assert all((parameter != 0).all() for parameter in redraw(make_gpt()).parameters())
