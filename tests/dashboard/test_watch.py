"""What a run records for the Attention tab, when, and that a run in pieces records it as one in one go."""

import pytest
import torch

import sample
import train
import watch
from dashboard import evidence, heads
from dashboard.logger import Logger
from data.tokenizer import Tokenizer
from model.gpt import GPT
from model.weights import load
from tests.dashboard.test_recording import decoded, recorded
from tests.test_train import ends, here, run, stop_after  # noqa: F401
from training import checkpoint


def test_both_probes_are_recorded_with_scores_losses_and_what_each_head_is_worth(here):  # noqa: F811
    result = run("run_dir=out", "model.dropout=0.5")  # which must not be seen
    found = {name: recorded(here / "out", f"attention/{name}") for name in ("text", "repeats")}
    for name, steps in found.items():
        assert [step for step, _, _ in steps] == [0, 1, 2, 3, 6]
        assert [step for step, header, _ in steps if header["ablation"]] == [0, 3, 6]  # the evaluations
        assert all((header["gain"] is None) == (name == "text") for _, header, _ in steps)
        assert all(header["about"] == watch.ABOUT[name] and header["causal"] for _, header, _ in steps)
    tokenizer = Tokenizer.load(here / "out" / "tokenizer.json")
    ids = heads.repeated_tokens(tokenizer.vocab_size, 16, 0, (tokenizer.end_of_text,))
    model = load(checkpoint.find(here / "out"))
    weights, loss = evidence.look(model, ids)
    _, header, maps = found["repeats"][-1]
    assert (decoded(header, maps) - weights).abs().max() <= 1 / 255
    assert header["tokens"] == [tokenizer.label(id) for id in ids.tolist()]
    assert header["loss"] == pytest.approx(loss.tolist(), abs=1e-3)
    assert header["gain"] == pytest.approx(evidence.induction_gain(loss), abs=1e-3)
    for name, values in heads.scores(weights, ids).items():
        assert torch.tensor(header["scores"][name]) == pytest.approx(values, abs=1e-3)
    ablation = torch.tensor(header["ablation"])
    torch.testing.assert_close(ablation, evidence.ablation(model, ids), atol=1e-3, rtol=0)
    last = result.state.heads[-1][1]
    assert last["induction"] == pytest.approx(torch.tensor(header["scores"]["induction"]), abs=1e-3)


def test_a_run_in_pieces_records_each_step_once(here, monkeypatch):  # noqa: F811
    run("run_dir=whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        run("run_dir=pieces")
    train.train(train.configure(["resume=pieces"]), say=lambda line: None)
    for name in ("text", "repeats"):
        pieces, whole = (sorted(recorded(here / f, f"attention/{name}")) for f in ("pieces", "whole"))
        assert [step for step, *_ in pieces] == [0, 1, 2, 3, 6] and pieces == whole


def test_pictures_are_few(here, monkeypatch):  # noqa: F811
    drawn = []
    monkeypatch.setattr(Logger, "attention", lambda self, step, probe, *more: drawn.append((step, probe)))
    run("run_dir=out", "train.max_steps=24", "log.attention_every=1")
    assert drawn == [(step, probe) for step in (0, 12, 24) for probe in ("text", "repeats")]


def test_what_the_model_looked_at_while_it_wrote_is_recorded_too(here):  # noqa: F811
    run("run_dir=out")
    assert ends(sample.PROGRAM, sample.main, "run=out", "attention=true", "max_new_tokens=8", "seed=3") == 0
    (folder,) = (here / "out" / "samples").iterdir()
    ((step, header, maps),) = recorded(folder, "attention/sample")
    assert step == 0 and len(header["tokens"]) == len(header["loss"]) + 1 == 9
    weights = decoded(header, maps)
    assert weights.shape == (2, 2, 9, 9) and (weights.sum(-1) - 1).abs().max() < 0.03


def test_never_looking_records_nothing(here):  # noqa: F811
    run("run_dir=out", "log.attention_every=0")
    with pytest.raises(KeyError):
        recorded(here / "out", "attention/text")


@pytest.mark.parametrize("fault", ["overflow", "too many heads"])
def test_a_model_that_cannot_be_shown_stops_nothing_and_says_so(here, monkeypatch, capsys, fault):  # noqa: F811
    forward = GPT.forward
    small = ["train.max_steps=1", "log.sample_every=0", "train.eval_every=1"]
    monkeypatch.setattr(Logger, "attention", lambda *drawing: None)  # 300 pictures take their time
    if fault == "overflow":  # where weights are recorded; training and evaluation go on
        small += ["model.n_heads=2"]
        broken = lambda self, ids, **m: forward(self, ids, **m) / ("record" not in m)  # noqa: E731
        monkeypatch.setattr(GPT, "forward", broken)
    else:
        small += ["model.n_heads=300", "model.d_head=2"]
        monkeypatch.setattr(evidence, "ablation", lambda model, ids: torch.zeros(2, 300))
    assert run("run_dir=out", *small).state.step == 1
    with pytest.raises(KeyError):
        recorded(here / "out", "attention/text")
    why = {"overflow": "loss has a value that is no finite number", "too many heads": "heads is 300"}[fault]
    assert f"no maps for the Attention tab: {why}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([], set()), ([5], {5}), ([9, 0], {0, 9}), (range(3), {0, 1, 2}), (range(0, 1001, 200), {0, 400, 1000})],
)
def test_spread(steps, expected):
    assert watch.spread(steps, 3) == expected


@pytest.mark.parametrize("most", [1, 60, 800, 5000, 10**6])
@pytest.mark.parametrize("every", [1, 50, 1000])
def test_a_run_looks_at_most_64_times_and_more_often_early(most, every):
    steps = watch.steps_to_look(most, every)
    assert len(steps) <= 64 and {0, most} <= steps and max(steps) == most
    assert {step for step in (1, 2, 5, 10, 20, 50) if step < min(every, most)} <= steps
