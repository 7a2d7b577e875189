"""What the model itself says about a probe: by hand where it can be, else by another way."""

import pytest
import torch
import torch.nn.functional as F

from dashboard import evidence, heads

IDS = torch.tensor([3, 14, 15, 9, 2, 6, 5, 35])


@pytest.mark.parametrize("attention", ["fused", "explicit"])
def test_look_gives_the_weights_and_the_loss_of_each_next_token(make_gpt, attention):
    model = make_gpt(attention=attention)
    weights, loss = evidence.look(model, IDS)
    torch.testing.assert_close(weights, model.attention_maps(IDS[None])[:, 0])
    probabilities = model(IDS[None])[0].softmax(-1)
    expected = [-probabilities[i, IDS[i + 1]].log() for i in range(len(IDS) - 1)]
    torch.testing.assert_close(loss, torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert not loss.requires_grad


@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"d_head": 4}, {"n_heads": 4}], ids=str)
def test_ablation_is_the_rise_of_the_loss_without_the_head_s_columns_of_out(make_gpt, settings):
    model = make_gpt(**settings)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rises = evidence.ablation(model, IDS)
    whole = F.cross_entropy(model(IDS[None])[0, :-1], IDS[1:])
    for layer, block in enumerate(model.blocks):
        width = block.attention.d_head
        for head in range(block.attention.n_heads):
            columns = slice(head * width, (head + 1) * width)
            with torch.no_grad():
                block.attention.out.weight[:, columns] = 0
                without = F.cross_entropy(model(IDS[None])[0, :-1], IDS[1:])
                block.attention.out.weight.copy_(before[f"blocks.{layer}.attention.out.weight"])
            torch.testing.assert_close(rises[layer, head], (without - whole).detach(), atol=1e-5, rtol=1e-4)
    assert rises.shape == (2, settings.get("n_heads", 2)) and rises.abs().min() > 1e-4
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_fault_while_a_head_is_silent_leaves_no_trace(make_gpt):
    model = make_gpt()
    expected = model(IDS[None])
    model.norm.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evidence._without(model, model.blocks[0].attention, 0, IDS)
    model.norm._forward_pre_hooks.clear()
    assert torch.equal(model(IDS[None]), expected)


def test_an_untrained_model_whose_heads_say_nothing_loses_nothing(make_gpt):
    model = make_gpt()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.out.weight)
    assert evidence.ablation(model, IDS).abs().max() == 0


@pytest.mark.parametrize("length", [4, 7, 8, 127, 128])
def test_the_gain_compares_the_copies_and_leaves_out_what_nobody_can_foresee(length):
    ids = heads.repeated_tokens(1000, length, 0)
    half = (length + 1) // 2
    loss = torch.full((length - 1,), 100.0)
    for token in range(1, length):
        if token < half:
            loss[token - 1] = 7.0
        elif token > half:
            assert ids[token] == ids[token - half] and ids[token - 1] == ids[token - 1 - half]
            loss[token - 1] = 2.0
    assert evidence.induction_gain(loss) == 5.0


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_text_too_short_to_repeat_has_no_gain(length):
    assert evidence.induction_gain(torch.zeros(length - 1)) is None
