"""Order, and what is blind to it."""

import pytest
import torch

from studies import common, order


def test_attention_without_positions_shuffles_its_answers_with_its_tokens():
    everything, last = order.shuffling()
    assert max(everything, last) < 1e-14


def test_a_causal_mask_breaks_that_but_one_layer_sees_a_bag_of_what_came_before():
    for setting in ({"causal": True}, {"layers": 1}):
        everything, last = order.shuffling(**setting)
        assert everything > 0.1 and last < 1e-14
    assert min(order.shuffling(layers=2)) > 0.1


def bags(make_gpt, layers: int, position: str, seed: int = 0):
    model = make_gpt(position, n_layers=layers, context_length=order.LENGTH)
    generator = torch.Generator().manual_seed(seed)
    return model, *torch.randint(50, (2, 200, order.LENGTH), generator=generator)


def test_what_order_is_worth_is_nothing_to_a_bag(make_gpt):
    assert abs(order.shuffled_rise(*bags(make_gpt, 1, "none"))) < 1e-5
    assert abs(order.shuffled_rise(*bags(make_gpt, 1, "rope"))) > 1e-3
    assert abs(order.shuffled_rise(*bags(make_gpt, 2, "none"))) > 1e-3


def test_a_position_that_is_in_the_features_is_found_and_one_that_is_not_is_not(make_gpt):
    model, x, _ = bags(make_gpt, 1, "learned")
    with torch.no_grad():
        model.position.table[:, 0] = torch.linspace(-1, 1, order.LENGTH) * 100  # far above the rest
        model.position.table[:, 1:] = 0
    assert order.position_known(model, x)[0] > 0.7
    model, x, _ = bags(make_gpt, 1, "none")
    assert abs(order.position_known(model, x)[0]) < 0.05


@pytest.mark.slow
def test_the_study_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RUNS", tmp_path)
    monkeypatch.setattr(order, "WORDS", [*order.WORDS, "train.max_steps=30"])
    found = order.measured(1, "none", 1)
    assert 3 < found["loss"] < 6 and abs(found["rise"]) < 1e-5 and len(found["known"]) == 2
    assert order.measured(1, "none", 1) == found and len(list(tmp_path.glob("order/*.json"))) == 1
