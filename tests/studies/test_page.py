"""docs/the-note-measured.md tells of every study, in both languages, and its figures are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("the-note-measured.md", "the-note-measured.zh-CN.md")]
STUDIES = {
    path.stem for path in (ROOT / "studies").glob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8")
}


def commands(page: Path) -> list[str]:
    return re.findall(r"^python -m studies\.(\w+)", page.read_text(encoding="utf-8"), re.M)


def test_every_study_is_told_of_once_in_both_languages():
    english, chinese = map(commands, PAGES)
    assert english == chinese and sorted(english) == sorted(STUDIES) and len(STUDIES) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_figures_and_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []
    figures = {Path(target).stem for target in targets if target.startswith("studies/")}
    assert figures >= STUDIES


def test_both_pages_have_the_same_numbers():
    """Every number with a fraction in one page stands in the other, in the same order."""
    english, chinese = (re.findall(r"\d+\.\d+", page.read_text(encoding="utf-8")) for page in PAGES)
    assert english == chinese


def test_figures_are_small():
    for path in (ROOT / "docs" / "studies").iterdir():
        assert path.stat().st_size < 60_000, path.name
