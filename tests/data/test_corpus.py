"""Text comes through byte for byte, from wherever it lies, each document in one split."""

import errno
import gzip
import json
import os

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.chunks import CHUNK, cut_into_documents
from data.config import DataConfig
from data.corpus import open_corpus

AWKWARD = "\ufeffone\r\ntwo\x0cthree\u2028four\rfive\n\n\x00 \t从前🎉e\u0301 <|endoftext|>\n"


def corpus_of(path, **settings):
    return open_corpus(DataConfig(source="file", path=str(path), **settings))


def documents(corpus, split: str) -> list[str]:
    """The documents of "train" or "validation", whole."""
    pieces = (chunk.text + "\0\0" * chunk.ends for where, chunk in corpus.chunks() if where == split)
    return "".join(pieces).split("\0\0")[:-1]


def texts(corpus) -> list[str]:
    """Every document, in whichever split, training first."""
    return [*documents(corpus, "train"), *documents(corpus, "validation")]


def write(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "我的小说", "a [1]*.md"])
def test_a_file_survives_byte_for_byte(tmp_path, name):
    text = AWKWARD * 3000  # longer than a block, so that characters lie across the cuts
    corpus = corpus_of(write(tmp_path / name, text))
    assert "".join(texts(corpus)) == text
    assert "".join(texts(corpus)) == text  # and again


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_last_part_of_a_file_is_validation_and_starts_a_line(tmp_path, fraction):
    text = "".join(f"line {n}\n" for n in range(20_000))
    corpus = corpus_of(write(tmp_path / "a.txt", text), val_fraction=fraction)
    (train,), (validation,) = documents(corpus, "train"), documents(corpus, "validation")
    assert train + validation == text
    assert train.endswith("\n")
    assert len(validation) == pytest.approx(fraction * len(text), rel=0.01)


def test_a_text_without_lines_is_cut_at_its_fraction(tmp_path):
    (validation,) = documents(corpus_of(write(tmp_path / "a.txt", "的" * 1000)), "validation")
    assert validation == "的" * 100


@given(length=st.integers(1, 5 * CHUNK), fraction=st.floats(0.001, 0.999), lines=st.integers(1, 3 * CHUNK))
def test_wherever_the_cut_falls_nothing_is_lost(tmp_path_factory, length, fraction, lines):
    text = (("x" * (lines - 1) + "\n") * (length // lines + 1))[:length]
    path = write(tmp_path_factory.getbasetemp() / "cut.txt", text)
    corpus = corpus_of(path, val_fraction=fraction)
    train, validation = list(documents(corpus, "train")), list(documents(corpus, "validation"))
    assert len(train) == 1 and train[0]
    assert "".join(train + validation) == text


def test_in_a_folder_every_tenth_document_is_validation(tmp_path):
    for n in range(25):
        write(tmp_path / f"{n:02}" / "text.md", f"document {n}")
    write(tmp_path / "00" / "picture.png", "not text")
    write(tmp_path / ".hidden" / "text.md", "hidden")
    corpus = corpus_of(tmp_path)
    assert list(documents(corpus, "validation")) == ["document 9", "document 19"]
    assert list(documents(corpus, "train")) == [f"document {n}" for n in range(25) if n not in (9, 19)]


def test_of_few_documents_each_gives_its_last_part(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.txt", name * 100)
    assert list(documents(corpus_of(tmp_path), "validation")) == ["a" * 10, "b" * 10, "c" * 10]


def test_a_glob_takes_what_it_matches_in_order(tmp_path):
    for name in ("b.log", "a.log", "c.txt"):
        write(tmp_path / name, name * 20)
    train = list(documents(corpus_of(tmp_path / "*.log"), "train"))
    assert [text[:5] for text in train] == ["a.log", "b.log"]


def test_a_file_counts_once_however_many_links_lead_to_it(tmp_path):
    write(tmp_path / "b.txt", "text " * 20)
    (tmp_path / "a.txt").symlink_to("b.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.txt").symlink_to("self.txt")
    for path in (tmp_path, tmp_path / "**" / "*.txt"):
        assert "".join(texts(corpus_of(path))) == "text " * 20


def test_a_folder_that_may_not_be_read_is_not_passed_over(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "closed" / "b.txt", "text")
    scan = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr("os.scandir", scandir)
    with pytest.raises(ValueError, match="closed: Permission denied"):
        corpus_of(tmp_path)


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path):
    row = json.dumps({"text": "word " * 20}) + "\n"
    path = write(tmp_path / "log.jsonl", row * 3)
    chunks = corpus_of(path).chunks()
    next(chunks)
    with open(path, "a") as file:
        file.write(row)
    with pytest.raises(ValueError, match="grew while it was being read"):
        list(chunks)


def test_json_lines_and_parquet_give_their_column(tmp_path):
    rows = [{"body": f"{AWKWARD}{n}", "n": n} for n in range(12)] + [{"body": None, "n": 12}]
    expected = [row["body"] for row in rows[:12]]
    lines = "\n\n".join(json.dumps(row) for row in rows)
    write(tmp_path / "rows.jsonl", lines)
    write(tmp_path / "rows.jsonl.gz", lines)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows [1].parquet")
    (tmp_path / "rows.parquet.gz").write_bytes(gzip.compress((tmp_path / "rows [1].parquet").read_bytes()))
    for name in ("rows.jsonl", "rows.jsonl.gz", "rows [1].parquet", "rows.parquet.gz"):
        corpus = corpus_of(tmp_path / name, column="body")
        assert list(documents(corpus, "validation")) == [expected[9]], name
        assert list(documents(corpus, "train")) == expected[:9] + expected[10:], name


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataset_in_a_folder_reads_like_one_on_the_hub(tmp_path, monkeypatch, streaming):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{"text": f"{AWKWARD}{n}"} for n in range(600)]
    folder = tmp_path / "dataset"
    folder.mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train.parquet")

    def opened(**settings):
        return open_corpus(
            DataConfig(source="hub", **{"name": str(folder), "streaming": streaming} | settings)
        )

    corpus = opened()
    assert list(documents(corpus, "validation")) == [row["text"] for row in rows[9::10]]
    assert len(list(documents(corpus, "train"))) == 540
    for settings, word in (
        ({"column": "body"}, "text"),
        ({"split": "nope"}, "train"),
        ({"config": "nope"}, "default"),
        ({"name": "nobody/nothing"}, "data=file"),
    ):
        with pytest.raises(ValueError, match=word) as error:
            list(opened(**settings).chunks())
        assert "\n" not in str(error.value)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:9]), folder / "train.parquet")
    assert opened().key != corpus.key


@given(
    parts=st.lists(st.text("ab\n-", max_size=6), max_size=8),
    separator=st.sampled_from(["\n", "---", "a-a", "\n\n"]),
    block=st.integers(1, 5),
)
def test_a_separator_splits_as_split_does_wherever_blocks_end(parts, separator, block):
    text = separator.join(parts)
    blocks = [text[at : at + block] for at in range(0, len(text), block)]
    chunks = list(cut_into_documents(blocks, separator))
    documents = "".join(chunk.text + "\0" * chunk.ends for chunk in chunks).split("\0")[:-1]
    assert documents == [part for part in text.split(separator) if part]


def test_a_long_separated_document_is_cut_and_joined_again():
    parts = ["x" * (5 * CHUNK), "y\n" * CHUNK, "z"]
    text = "<cut>".join(parts)
    blocks = [text[at : at + 1000] for at in range(0, len(text), 1000)]
    chunks = list(cut_into_documents(blocks, "<cut>"))
    assert max(len(chunk.text) for chunk in chunks) <= 2 * CHUNK + 1000
    documents = "".join(chunk.text + "\0" * chunk.ends for chunk in chunks).split("\0")[:-1]
    assert documents == parts


def test_a_separator_may_be_longer_than_a_piece():
    separator = "-" * (3 * CHUNK)
    chunks = list(cut_into_documents(iter(["one", separator[:CHUNK], separator[CHUNK:], "two"]), separator))
    assert [chunk.text for chunk in chunks] == ["one", "two"]


def test_a_separator_makes_documents_of_a_file(tmp_path):
    path = write(tmp_path / "a.txt", "\n\n".join(f"poem {n}\nline" for n in range(30)))
    corpus = corpus_of(path, separator="\n\n")
    assert list(documents(corpus, "validation")) == [f"poem {n}\nline" for n in (9, 19, 29)]


def test_validation_of_its_own_is_never_trained_on(tmp_path):
    for name in ("a", "b", "val"):
        write(tmp_path / f"{name}.txt", name * 50)
    corpus = corpus_of(tmp_path, val_path=str(tmp_path / "val.txt"))
    assert list(documents(corpus, "train")) == ["a" * 50, "b" * 50]
    assert list(documents(corpus, "validation")) == ["val" * 50]


def test_the_key_follows_content_not_place(tmp_path):
    one, two = write(tmp_path / "1.txt", "same " * 9), write(tmp_path / "2.txt", "same " * 9)
    before = corpus_of(one).key
    assert corpus_of(two).key == before
    assert corpus_of(one, val_fraction=0.2).key != before
    write(one, "sane " * 9)
    assert corpus_of(one).key != before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("latin.txt", b"caf\xe9 au lait", r"latin\.txt.*0xe9 at offset 3"),
        ("cut.txt", "ab从".encode()[:-1], r"0xe4 at offset 2"),
        ("far.txt", b"x" * 200_000 + b"\xff", r"offset 200000"),
        ("a.txt.gz", b"plain text", r"a\.txt\.gz: not a sound \.gz"),
        ("cut.txt.gz", gzip.compress(b"text" * 999)[:-9], r"not a sound \.gz"),
        ("a.parquet.gz", gzip.compress(b"nothing of the kind"), r"a\.parquet\.gz: "),
        ("cut.parquet.gz", gzip.compress(b"x" * 999)[:-9], r"cut\.parquet\.gz: not a sound \.gz"),
        ("a.jsonl", b'{"text": "x"}\n{"text": ', r"a\.jsonl, line 2: not JSON"),
        ("b.jsonl", b'{"body": "x"}', r"line 1: no data.column=text; there is 'body'"),
        ("c.jsonl", b'{"text": 3}', r"line 1: .* holds int, not text"),
        ("deep.jsonl", b"[" * 100_000, r"line 1: not JSON"),
        ("keys.jsonl", rb'{"a\nb": "x", "\ud83d": "x"}', r"there is 'a\\nb' '\\ud83d'"),
        ("d.jsonl", b'["x"]', r"line 1: not an object"),
        ("e.jsonl", rb'{"text": "\ud83d"}', r"line 1: .* surrogate"),
        ("a.parquet", b"nothing of the kind", r"a\.parquet: "),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        list(corpus_of(tmp_path / name).chunks())
    assert "\n" not in str(error.value)


def test_an_empty_table_has_no_documents(tmp_path):
    table = pyarrow.Table.from_pylist([{"text": "row 1"}, {"text": "row 2"}])
    pyarrow.parquet.write_table(table.slice(0, 0), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    assert "".join(texts(corpus_of(tmp_path))) == "row row 12"


def test_a_table_that_cannot_be_read_is_said_once(tmp_path, capfd):
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"a\.parquet: "):
        list(corpus_of(tmp_path / "a.parquet").chunks())
    assert capfd.readouterr() == ("", "")


def test_a_packed_table_needs_room_to_be_unpacked(tmp_path, monkeypatch):
    rows = pyarrow.Table.from_pylist([{"text": "row"}])
    pyarrow.parquet.write_table(rows, tmp_path / "a.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    scratch = tmp_path / "scratch"
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with pytest.raises(ValueError, match=r"a\.parquet\.gz: cannot be unpacked \(No such file.*TMPDIR"):
        list(corpus_of(tmp_path / "a.parquet.gz").chunks())
    scratch.mkdir()
    assert texts(corpus_of(tmp_path / "a.parquet.gz")) == ["ro", "w"]
    assert list(scratch.iterdir()) == []


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"data.path=.*nothing\.txt: no such file"):
        corpus_of(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match=r"no \.txt \.md \.py \.jsonl \.parquet file"):
        corpus_of(tmp_path)
    with pytest.raises(ValueError, match=r"data=file needs data\.path"):
        open_corpus(DataConfig(source="file"))
    with pytest.raises(ValueError, match="belongs to data=file"):
        open_corpus(DataConfig(path="a.txt"))
    with pytest.raises(ValueError, match="leaves nothing"):
        write(tmp_path / "a.txt", "text")
        corpus_of(tmp_path / "a.txt", val_path=str(tmp_path / "a.txt"))
