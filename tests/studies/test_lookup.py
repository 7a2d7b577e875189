"""A dictionary that is looked up softly."""

import torch

from studies import lookup


def test_an_example_is_a_dictionary_and_one_of_its_keys():
    keys, values, asked = lookup.draw(200, seed=1)
    assert all(len(set(row.tolist())) == lookup.ENTRIES for row in keys)
    assert keys.min() >= 0 and keys.max() < lookup.KEYS and values.max() < lookup.VALUES
    assert set(asked.tolist()) == set(range(lookup.ENTRIES))
    assert torch.equal(lookup.draw(200, seed=1)[0], keys)
    assert not torch.equal(lookup.draw(200, seed=2)[0], keys)


def test_the_question_does_not_look_at_itself_and_order_does_not_count():
    torch.manual_seed(0)
    model = lookup.Dictionary()
    keys, values, asked = lookup.draw(5, seed=1)
    question = model.keys(lookup.picked(keys, asked))
    logits, weights = model(keys, values, question)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    order = torch.randperm(lookup.ENTRIES)
    mixed, moved = model(keys[:, order], values[:, order], question)
    torch.testing.assert_close(mixed, logits)
    torch.testing.assert_close(moved, weights[:, order])


def test_it_learns_to_look_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lookup, "STEPS", 100)
    found = lookup.compute(1)
    first, last = found["history"][0], found["history"][-1]
    assert first["weight"] < 0.25 and last["weight"] > 0.8 and last["accuracy"] > 0.9
    line = found["between"]
    assert line[0][0] > 0.8 and line[-1][1] > 0.8 and abs(line[10][0] - line[10][1]) < 0.3
    assert abs(sum(found["missing"]) - 1) < 1e-5 and found["missing"][0] < found["present"][0]
