"""What the README promises of `python train.py`."""

import re

import pytest
import torch

import sample
import train
from data.config import DataConfig
from data.corpus import open_corpus
from tests.test_train import ends


@pytest.mark.slow
def test_the_default_run_finds_a_previous_token_head_and_writes_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(2)
    try:
        result = train.train(train.configure([]), [])
    finally:
        torch.set_num_threads(1)
    last = result.state.heads[-1][1]["previous_token"]
    assert max(score for layer in last for score in layer) >= 0.5
    assert any("looks at the previous token" in line for line in result.heads)
    chunks = open_corpus(DataConfig()).chunks()
    known = set(re.findall("[A-Za-z]+", "".join(chunk.text for split, chunk in chunks if split == "train")))
    capsys.readouterr()
    assert ends(sample.PROGRAM, sample.main, "num_samples=10", "max_new_tokens=200") == 0
    words = re.findall("[A-Za-z]+", capsys.readouterr().out)
    assert len(words) > 300 and sum(word in known for word in words) / len(words) >= 0.95
