"""Streamed text is the text decoded at once, in whole characters, up to the stop string."""

from hypothesis import given
from hypothesis import strategies as st

from data.stream import TextStream
from tests.data.test_tokenizer import ANY, MADE


def streamed(tokenizer, ids, stop=None) -> list[str]:
    stream = TextStream(tokenizer, stop)
    return [*(stream.feed(id) for id in ids), stream.flush()]


@given(text=ANY)
def test_the_pieces_are_the_text_and_no_piece_is_half_a_character(text):
    for kind in ("bpe", "byte"):
        pieces = streamed(MADE[kind], MADE[kind].encode(text))
        assert "".join(pieces) == text
        assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


@given(ids=st.lists(st.integers(0, 256), max_size=60))
def test_bytes_that_are_no_text_stream_as_they_decode(ids):
    pieces = streamed(MADE["byte"], ids)
    assert "".join(pieces) == MADE["byte"].decode(ids)
    # Noise does not wait for the end: what is held back is never more than a character's bytes, about.
    shown = ["".join(pieces[: n + 1]) for n in range(len(ids))]
    assert all(len(MADE["byte"].decode(ids[: n + 1])) - len(text) <= 5 for n, text in enumerate(shown))


@given(text=st.text("ab\n从", max_size=30), stop=st.text("ab\n从", min_size=1, max_size=4))
def test_the_stop_string_is_cut_off_though_it_spans_tokens(text, stop):
    for kind in ("bpe", "byte"):
        stream = TextStream(MADE[kind], stop)
        pieces = []
        for id in MADE[kind].encode(text):
            pieces.append(stream.feed(id))
            if stream.stopped:
                break
        pieces.append(stream.flush())
        assert "".join(pieces) == text.split(stop)[0]
        assert stream.stopped == (stop in text)


def test_text_is_not_held_back_longer_than_it_must_be():
    assert streamed(MADE["byte"], MADE["byte"].encode("a从b")) == ["a", "", "", "从", "b", ""]
    assert streamed(MADE["byte"], MADE["byte"].encode("aXbXY"), "XY") == ["a", "", "Xb", "", "", ""]
