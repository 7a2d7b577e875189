"""decode(encode(text)) == text; the NumPy twins say what their tokenizer.json says; labels can be read."""

import json
import subprocess
import sys
from unicodedata import category

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from data.config import TokenizerConfig
from data.tokenizer import END_OF_TEXT, LEAST_BPE, Tokenizer, spread, train_tokenizer
from data.words import WORD

SAMPLE = "the cat sat on the mat; 从前有座山，山里有座庙。\r\n\tthe end 🎉 <|endoftext|> <unk>\n" * 20
KINDS = ("bpe", "char", "byte")
ANY = st.text(st.characters(exclude_categories=["Cs"]))
BLANKS = " \n\t\r\x0b\x1c\x1f\x85\xa0\u200b\u2028\u3000"  # and what only looks like one
TRICKY = st.text(st.sampled_from(BLANKS + "'sdmtlvreQſ1٣²Ⅷ_!-.。—从é\u0301🎉𝒳\x7f\x00"))
KNOWN = st.text(st.sampled_from(sorted(set(SAMPLE))))


def made(kind: str, text: str = SAMPLE, vocab_size: int = 400) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(name=kind, vocab_size=vocab_size), iter([text]))


MADE = {kind: made(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", ["bpe", "byte"])
@given(text=ANY)
def test_any_text_comes_back(kind, text):
    assert MADE[kind].decode(MADE[kind].encode(text)) == text


@given(text=KNOWN)
def test_known_characters_come_back(text):
    assert MADE["char"].decode(MADE["char"].encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_of_text_that_is_typed_is_text_also_after_loading(tmp_path, kind):
    MADE[kind].save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == MADE[kind].fingerprint
    for tokenizer in (MADE[kind], loaded):
        ids = tokenizer.encode(SAMPLE)
        assert tokenizer.end_of_text not in ids
        assert tokenizer.decode(ids) == SAMPLE
        assert tokenizer.decode([tokenizer.end_of_text]) == END_OF_TEXT
        assert tokenizer.end_of_text < tokenizer.vocab_size
        np.testing.assert_array_equal(ids, MADE[kind].encode(SAMPLE))


def definition(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.wrapped.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANY | TRICKY)
def test_a_twin_gives_the_ids_of_its_tokenizer_json(kind, text):
    tokenizer = MADE[kind]
    assert tokenizer._kind == kind
    for _ in range(2):
        (ids,) = tokenizer.encode_batch([text])
        assert ids.tolist() == definition(tokenizer, text)


def ends(pieces: list[str]) -> set[int]:
    return set(np.cumsum([len(piece) for piece in pieces]).tolist())


def cuts(text: str) -> set[int]:
    """Where `tokenizers` ends the pieces that BPE sees."""
    pieces = MADE["bpe"].wrapped.pre_tokenizer.pre_tokenize_str(text)
    return {end for _, (_, end) in pieces}


@given(text=TRICKY)
@example("I'm we've they're he'd she'll don't it's 't's ''s !'s 'S\n's -'s a'sb  'll   're.'t")
def test_words_end_only_where_the_definition_cuts(text):
    words = WORD.findall(text)
    assert "".join(words) == text
    assert ends(words) <= cuts(text)


def test_words_end_only_where_the_definition_cuts_beside_every_character():
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    characters = [c for c in characters if c < "\u3400" or category(c)[0] not in "LC"]  # of letters, some
    assert len(characters) > 15_000
    text = "".join(f"a{c}a1{c}1.{c}. {c} \n{c}\n" for c in characters)
    assert ends(WORD.findall(text)) <= cuts(text)


def test_words_are_short_where_text_has_blanks_and_signs():
    words = WORD.findall("if (a.b):\n    return it's")
    assert words == ["if", " (", "a", ".", "b", "):", "\n   ", " return", " it's"]


def test_words_that_were_forgotten_are_learnt_again(monkeypatch):
    monkeypatch.setattr("data.words.KEPT", 30)
    tokenizer = made("bpe")
    for text in (SAMPLE, "x" * 100, "the cat", SAMPLE):
        (ids,) = tokenizer.encode_batch([text])
        assert ids.tolist() == definition(tokenizer, text)
    assert len(tokenizer._words.ids) == len(set(WORD.findall(SAMPLE)))


@pytest.mark.parametrize("change", ["dropout", "pre_tokenizer", "normalizer", "added"])
def test_only_a_tokenizer_that_cuts_as_gpt2_does_looks_words_up(change):
    other = tokenizers.Tokenizer.from_str(MADE["bpe"].wrapped.to_str())
    assert Tokenizer(other)._kind == "bpe"
    if change == "dropout":
        other.model.dropout = 0.5
    elif change == "pre_tokenizer":
        other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "normalizer":
        other.normalizer = tokenizers.normalizers.Lowercase()
    else:
        other.add_tokens(["e c"])
    assert Tokenizer(other)._kind is None
    if change != "dropout":
        texts = ["the cat", " the cat 从前 THE END", ""]
        ids = Tokenizer(other).encode_batch(texts)
        assert [row.tolist() for row in ids] == [definition(Tokenizer(other), text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_the_same_file(tmp_path, kind):
    MADE[kind].save(tmp_path / "tokenizer.json")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = SAMPLE.replace(END_OF_TEXT, "")
    ids = theirs.encode(text, add_special_tokens=False)
    assert ids == MADE[kind].encode(text).tolist()
    assert theirs.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(theirs) == MADE[kind].vocab_size


def test_bpe_is_the_same_in_another_process():
    code = (
        "from tests.data.test_tokenizer import made, SAMPLE; import random\n"
        "words = random.Random(1).choices(SAMPLE.split() + [str(n) for n in range(99)], k=3000)\n"
        "print(made('bpe', ' '.join(words), 700).fingerprint)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(2)]
    assert runs[0].stdout.strip(), runs[0].stderr
    assert runs[0].stdout == runs[1].stdout


def test_bpe_learns_what_repeats_and_nothing_else():
    assert MADE["bpe"].vocab_size < 400  # SAMPLE has no more
    assert len(MADE["bpe"].encode(SAMPLE)) < len(SAMPLE.encode()) / 2
    assert made("bpe", vocab_size=300).vocab_size == 300
    with pytest.raises(ValueError, match=f"vocab_size=256.*at least {LEAST_BPE}"):
        made("bpe", vocab_size=256)
    assert made("bpe", vocab_size=LEAST_BPE).vocab_size == LEAST_BPE


def test_an_unknown_character_is_named_when_asked_and_counted_when_read():
    with pytest.raises(ValueError, match="'Q' 'é'"):
        MADE["char"].encode("the Qéé")
    assert MADE["char"].unknown("the Qéé\x00") == "Qéé\x00"
    assert MADE["char"].encode_batch(["Q"])[0].tolist() == [MADE["char"].vocabulary["<unk>"]]
    assert MADE["bpe"].unknown("the Qéé") == MADE["byte"].unknown("the Qéé") == ""


def test_a_tokenizer_of_other_people_works(tmp_path):
    words = {"[UNK]": 0, "hello": 1, "world": 2, "[SEP]": 9}
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    other.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    other.add_special_tokens(["[SEP]", "[UNK]"])
    other.enable_truncation(2)
    other.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.encode("hello world hello").tolist() == [1, 2, 1]
    assert (tokenizer.end_of_text, tokenizer.vocab_size) == (9, 10)
    assert tokenizer.unknown("hello moon world") == "moon"


def test_labels_show_blanks_and_split_characters():
    for kind in KINDS:
        tokenizer = MADE[kind]
        assert tokenizer.label(tokenizer.end_of_text) == END_OF_TEXT
        labels = [tokenizer.label(id) for id in range(tokenizer.vocab_size)]
        assert len(set(labels)) == len(labels)
        assert all(label.isprintable() and " " not in label for label in labels)
        shown = [tokenizer.label(id) for id in tokenizer.encode("\n\t ")]
        assert "".join(shown) == "⏎⇥␣"
    assert [MADE["byte"].label(id) for id in MADE["byte"].encode("a从")] == ["a", r"\xe4", r"\xbb", r"\x8e"]
    assert MADE["char"].label(MADE["char"].encode("从")[0]) == "从"


def test_an_id_outside_the_vocabulary_is_named():
    for id in (-1, 10**6):
        with pytest.raises(ValueError, match=f"token id {id} is outside the vocabulary"):
            MADE["bpe"].decode([1, id])


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"a": 1}))
    for path, words in (
        (tmp_path / "tokenizer.json", "not a tokenizer.json"),
        (tmp_path / "x", "No such file"),
    ):
        with pytest.raises(ValueError, match=words):
            Tokenizer.load(path)


def test_spread_takes_evenly_from_everything():
    texts = [f"{n:04}" for n in range(1000)]
    kept = spread(iter(texts), 400)
    assert 200 <= sum(map(len, kept)) <= 400
    gaps = np.diff([int(text) for text in kept])
    assert len(set(gaps)) == 1
    assert int(kept[-1]) + gaps[0] >= 1000
    assert spread(iter(texts), 10**6) == texts
