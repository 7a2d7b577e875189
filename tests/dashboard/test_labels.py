"""Labels: everything can be seen, nothing is read as markup."""

import html
import re
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.labels import code_block, columns_of, token_label, visible

with warnings.catch_warnings():  # TensorBoard's copy of html5lib warns about itself
    warnings.simplefilter("ignore")
    from tensorboard.plugin_util import markdown_to_safe_html


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (" the", "·the"),
        ("\n", "↵"),
        ("\t\r", "⇥\\r"),
        ("\x00", "\\x00"),
        ("\u200b", "\\u200b"),
        ("\u202e", "\\u202e"),  # would turn the rest of the label around
        ("\udc80", "\\udc80"),
        ("$x^2$", "$x^2$"),
        ("从前", "从前"),
        ("😀", "😀"),
        ("", "∅"),
        ("extraordinary", "extraordi…"),
        ("从前有一座山", "从前有一…"),
    ],
)
def test_token_labels(token, label):
    assert token_label(token) == label


@given(st.text(st.characters(exclude_categories=())))
def test_labels_are_short_printable_and_encodable(text):
    label = token_label(text)
    assert 1 <= columns_of(label) <= 10
    assert label.encode()
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in label)


def shown(text: str) -> str:
    """What a reader of TensorBoard's Text tab sees of a code block; nothing in it may become a tag."""
    page = markdown_to_safe_html(code_block(text))
    inside = re.fullmatch(r"<pre><code>(.*)\n</code></pre>", page, re.DOTALL)
    assert inside and "<" not in inside[1], page
    return html.unescape(inside[1])


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)> & &lt;b&gt; <!-- </code></pre><b>",
        "```\n# not a title\n```\n* item\n1. item\n    deeper\n\n\n> quote | a | b |\n---",
        "[link](http://x) ![image](y) **bold** `code` \\* $x$ <http://x>",
        "从前有座山\n😀",
        "<div>\n\n<?php ?>\n<![CDATA[ x ]]>",
        "[ref]: http://x\n\n[ref]",
    ],
)
def test_a_code_block_shows_markup_as_it_is(text):
    assert shown(text) == text


@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("<>&`*#[]!-_|~ \n")))
def test_a_code_block_shows_any_text(text):
    """Up to what Markdown does to white space: trailing spaces of blank lines, blank lines at both ends."""
    words = text.replace("\r\n", "\n").expandtabs(4)
    expected = [visible(line).rstrip() for line in words.split("\n")]
    if any(expected):
        assert [line.rstrip() for line in shown(text).split("\n") if line.strip()] == [
            e for e in expected if e.strip()
        ]
