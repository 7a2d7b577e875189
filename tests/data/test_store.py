"""Tokens are prepared once, whole or not at all, whoever interrupts and however many do it at once."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from data import store
from data.config import DataConfig, TokenizerConfig
from data.store import cache_folder, prepare

TEXT = "".join(f"{n}: the cat sat on the mat, 从前有座山 🎉\r\n" for n in range(2000))


def silent(line: str) -> None:
    pass


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return DataConfig(source="file", path=str(path))


@pytest.mark.parametrize("kind", ["bpe", "char", "byte"])
def test_what_is_stored_is_the_text(text, kind):
    made = prepare(text, TokenizerConfig(kind, vocab_size=400), silent)
    end = made.tokenizer.end_of_text
    assert made.train[-1] == made.validation[-1] == end
    pieces = [made.tokenizer.decode(ids[:-1]) for ids in (made.train, made.validation)]
    assert "".join(pieces) == TEXT
    assert made.bytes == {"train": len(pieces[0].encode()), "validation": len(pieces[1].encode())}
    assert made.tokens == {"train": len(made.train), "validation": len(made.validation)}
    assert made.documents == {"train": 1, "validation": 1}
    assert made.train.dtype == np.uint16
    assert made.train.max() < made.tokenizer.vocab_size


def test_an_end_of_text_follows_every_document(tmp_path):
    for n in range(20):
        (tmp_path / f"{n:02}.txt").write_text("x" * (n + 1))
    made = prepare(DataConfig(source="file", path=str(tmp_path)), TokenizerConfig("byte"), silent)
    lengths = np.diff(np.flatnonzero(np.append(256, made.train) == 256)) - 1
    assert lengths.tolist() == [n + 1 for n in range(20) if n % 10 != 9]
    assert made.documents == {"train": 18, "validation": 2}


def test_a_large_vocabulary_is_stored_in_32_bits(tmp_path, text):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "the": 70_000, "cat": 69_999}
    other = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    other.save(str(tmp_path / "tokenizer.json"))
    made = prepare(text, TokenizerConfig(path=str(tmp_path / "tokenizer.json")), silent)
    assert made.train.dtype == np.uint32
    assert made.train.max() == 70_000


def test_a_tokenizer_that_has_no_word_for_the_text_is_an_error(tmp_path, text, cache):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"the": 0}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"cannot take this text .*\[UNK\]"):
        prepare(text, TokenizerConfig(path=str(tmp_path / "tokenizer.json")), silent)
    assert list(cache.iterdir()) == []


def test_no_more_threads_than_cores_are_started(text, monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", "")
    monkeypatch.delenv("RAYON_NUM_THREADS")
    prepare(replace(text, num_proc=10**9), TokenizerConfig("byte"), silent)
    assert int(os.environ["RAYON_NUM_THREADS"]) == os.cpu_count()


def test_the_tokenizer_never_sees_validation(tmp_path):
    (tmp_path / "train.txt").write_text("aab " * 200)
    (tmp_path / "val.txt").write_text("aaQ从b " * 10)
    data = DataConfig(source="file", path=str(tmp_path / "train.txt"), val_path=str(tmp_path / "val.txt"))
    made = prepare(data, TokenizerConfig("char"), silent)
    assert "Q" not in made.tokenizer.vocabulary
    assert (made.unknown_characters, made.unknown_bytes) == (20, 40)
    assert "20 characters" in made.summary()
    assert made.tokenizer.decode(made.validation[:5]) == "aa<unk><unk>b"


def test_a_second_start_finds_the_tokens_and_a_changed_file_is_noticed(text, monkeypatch):
    first = prepare(text, TokenizerConfig("char"), silent)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_build", lambda *_: pytest.fail("prepared again"))
        again = prepare(text, TokenizerConfig("char"), silent)
    assert again.fingerprint == first.fingerprint
    np.testing.assert_array_equal(again.train, first.train)
    with open(text.path, "r+b") as file:
        file.write(b"7")
    changed = prepare(text, TokenizerConfig("char"), silent)
    assert changed.fingerprint != first.fingerprint
    assert changed.tokenizer.decode(changed.train[:2]) == "7:"


def test_a_saved_tokenizer_finds_the_tokens_it_made(text, tmp_path, monkeypatch):
    first = prepare(text, TokenizerConfig("bpe", 300), silent)
    prepare(text, TokenizerConfig("bpe", 310), silent)
    first.tokenizer.save(tmp_path / "saved.json")
    monkeypatch.setattr(store, "_build", lambda *_: pytest.fail("prepared again"))
    again = prepare(text, TokenizerConfig(path=str(tmp_path / "saved.json")), silent)
    assert again.fingerprint == first.fingerprint


def test_a_vocabulary_that_cannot_be_had_is_said(text):
    said = []
    made = prepare(text, TokenizerConfig("bpe", 5000), said.append)
    assert any(f"{made.tokenizer.vocab_size:,} tokens, not 5,000" in line for line in said)


def test_damaged_tokens_are_prepared_again(text, cache):
    first = prepare(text, TokenizerConfig("byte"), silent)
    (folder,) = cache.iterdir()
    expected = np.array(first.train)
    del first
    os.truncate(folder / "train.bin", 10)
    np.testing.assert_array_equal(prepare(text, TokenizerConfig("byte"), silent).train, expected)
    assert list(cache.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["meta.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["", "[]", "null", "{}", '{"dtype": "x", "tokens": 1}'])
def test_a_damaged_cache_never_blocks_a_start(text, cache, name, damage):
    made = prepare(text, TokenizerConfig("byte"), silent)
    (folder,) = cache.iterdir()
    (folder / name).write_text(damage)
    again = prepare(text, TokenizerConfig("byte"), silent)
    assert again.fingerprint == made.fingerprint and np.array_equal(again.train, made.train)


@pytest.mark.parametrize("step", ["_learn", "_tokenize"])
def test_what_fails_halfway_leaves_nothing(text, cache, monkeypatch, step):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, step, fail)
    with pytest.raises(KeyboardInterrupt):
        prepare(text, TokenizerConfig("byte"), silent)
    assert list(cache.iterdir()) == []


PREPARE = """
import sys
from data.config import DataConfig, TokenizerConfig
from data.store import prepare
made = prepare(DataConfig(source="file", path=sys.argv[1]), TokenizerConfig("bpe", 500))
print(made.fingerprint)
"""


def start(path: str, before: str = "") -> subprocess.Popen:
    command = [sys.executable, "-c", before + PREPARE, path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_kill_at_any_moment_leaves_nothing_that_looks_finished(text, cache):
    for pause in (0.0, 0.05, 0.15):
        process = start(text.path)
        while not cache.exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for folder in cache.iterdir():
            assert folder.name.startswith(store.UNFINISHED) or store._meta(folder)
    process = start(text.path)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out.split()[-1] == prepare(text, TokenizerConfig("bpe", 500), silent).fingerprint


def test_two_that_prepare_the_same_text_at_once_agree(text, cache):
    processes = [start(text.path) for _ in range(2)]
    outs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outs
    assert len({out.split()[-1] for out, _ in outs}) == 1
    assert len(list(cache.iterdir())) == 1


def test_a_full_disk_is_one_clear_error(text, cache):
    full = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    process = start(text.path, before=full)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "ValueError: cannot keep the prepared text in" in errors.splitlines()[-1]
    assert "CLEARHEAD_CACHE" in errors.splitlines()[-1]
    assert list(cache.iterdir()) == []


def test_what_was_abandoned_is_swept_and_what_is_being_made_is_not(text, cache):
    old, new = cache / f"{store.UNFINISHED}old", cache / f"{store.UNFINISHED}new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "train.bin").touch()
    for path in (old, old / "train.bin", new):
        os.utime(path, (1, 1))
    (cache / f"{store.UNFINISHED}gone").symlink_to("nowhere")  # as if it went while somebody looks
    prepare(text, TokenizerConfig("byte"), silent)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize(("content", "words"), [("", "no text in it"), ("x", "too little text")])
def test_a_text_too_small_to_split_is_refused(tmp_path, cache, content, words):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=words):
        prepare(DataConfig(source="file", path=str(tmp_path / "a.txt")), TokenizerConfig("bpe"), silent)
    assert list(cache.iterdir()) == []


def test_the_cache_lies_where_the_user_says(monkeypatch, tmp_path, text):
    made = prepare(text, TokenizerConfig("byte"), silent)
    (folder,) = cache_folder().iterdir()
    assert json.loads((folder / "meta.json").read_text())["fingerprint"] == made.fingerprint
    monkeypatch.delenv("CLEARHEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "clearhead"
