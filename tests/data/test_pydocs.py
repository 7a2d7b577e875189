"""The default text is large enough, repeats nothing, and is the same every time."""

import ast
import sys
import sysconfig

import pytest

from data import pydocs


def test_the_text_lies_in_the_band_that_the_readme_promises():
    texts = pydocs.pydocs()
    assert 1.5e6 < sum(len(text.encode()) for text in texts) < 2e6
    assert len(texts) > 500
    assert max(map(len, texts)) < 100_000
    held = sum(len(text) for text in texts[9::10]) / sum(map(len, texts))
    assert 0.05 < held < 0.15


def test_no_paragraph_comes_twice():
    paragraphs = [part for text in pydocs.pydocs() for part in text.strip("\n").split("\n\n")]
    long = [part for part in paragraphs if len(part) >= pydocs.SHORT]
    assert len(long) > 5_000
    assert len(set(long)) == len(long)


def test_it_is_what_help_prints():
    text = "".join(pydocs.pydocs())
    assert "\nThe standard type hierarchy\n" in "\n" + text
    assert "class collections.OrderedDict(dict)\n    Dictionary that remembers insertion order\n" in text
    assert "\nOrderedDict.move_to_end(self, key, last=True)\n    Move an existing element" in text


def test_reading_it_again_gives_the_same():
    before = pydocs.pydocs()
    pydocs.pydocs.cache_clear()
    assert pydocs.pydocs() == before
    assert pydocs.library_key() == pydocs.library_key()


def test_the_library_is_source_without_tests():
    top = sysconfig.get_path("stdlib")
    folders = {part for file in pydocs.library_files() for part in file.relative_to(top).parts[:-1]}
    assert {"json", "email"} <= folders
    assert not folders & {"test", "tests", "site-packages", "idlelib"}
    source = next(text for text in pydocs.stdlib() if "class OrderedDict(" in text)
    ast.parse(source)


def test_a_python_without_topics_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    pydocs.pydocs.cache_clear()
    with pytest.raises(ValueError, match=r"lacks pydoc_data.*data=file"):
        pydocs.pydocs()
