"""The text that every Python brings along: its documentation, and the source of its library.

The documentation is what `help()` shows: the language reference (`pydoc_data.topics`) and the
docstrings of the standard library, read with `ast`, so that nothing is imported. It differs a little
between Python versions.
"""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

LEFT_OUT = {
    *("test", "tests", "idle_test", "__phello__"),
    *("site-packages", "dist-packages", "ensurepip", "lib2to3", "pydoc_data", "encodings", "__pycache__"),
    *("tkinter", "turtledemo", "idlelib", "distutils"),  # not in every installation
}
SHORT = 60  # characters; a repeated paragraph below that is a phrase, not a repetition
READABLE = 200  # characters; what is left of a text below that is not worth being a document


def library_files() -> list[Path]:
    """The source files of the standard library in a fixed order, without tests and generated ones."""
    found = []
    top = sysconfig.get_path("stdlib")
    for here, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not (name in LEFT_OUT or name.startswith("config-")))
        found += [Path(here, name) for name in sorted(names) if name.endswith(".py")]
    found = [file for file in found if not file.name.startswith("_sysconfigdata")]
    if not found:
        raise ValueError(f"this Python keeps no library source in {top}; use data=file data.path=...")
    return found


def library_key() -> str:
    """Changes when Python is another or a file of its library was touched; no file is opened."""
    stats = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in library_files()]
    return hashlib.sha256("\n".join([sys.version, *stats]).encode()).hexdigest()


def stdlib() -> Iterator[str]:
    """The source files of the library, each a document."""
    return (file.read_bytes().decode("utf-8") for file in library_files())


@cache  # parsing takes a second, and a preparation reads three times
def pydocs() -> tuple[str, ...]:
    """A document for every topic of `help()`, every module and every public class, without repetitions."""
    seen: set[str] = set()
    texts = (_without_repetitions(text, seen) for text in chain(_topics(), _docstrings()))
    return tuple(text for text in texts if len(text) >= READABLE)


def _topics() -> Iterator[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ValueError(
            f"this Python ({sys.executable}) lacks pydoc_data, the text of help(); "
            "install the whole standard library, or use data=file data.path=..."
        ) from None
    return (topics[name].strip("\n") + "\n" for name in sorted(topics))


def _docstrings() -> Iterator[str]:
    top = Path(sysconfig.get_path("stdlib"))
    for file in library_files():
        name = ".".join(file.relative_to(top).with_suffix("").parts).removesuffix(".__init__")
        try:
            tree = ast.parse(file.read_bytes())
        except SyntaxError:  # a fixture that is wrong on purpose
            continue
        yield from _of_module(name, tree)


def _of_module(name: str, tree: ast.Module) -> Iterator[str]:
    """The module's own docstring and its functions' in one document, then every class in one."""
    own = [_entry(f"module {name}", tree), *_entries(tree, f"{name}.")]
    yield "\n".join(filter(None, own))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            entries = [_entry(f"class {name}.{_call(node)}", node), *_entries(node, f"{node.name}.")]
            yield "\n".join(filter(None, entries))


def _entries(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield _entry(prefix + _call(node), node)


def _entry(head: str, node: ast.AST) -> str:
    """A heading and the docstring below it, as `help()` prints them; nothing without a docstring."""
    docstring = ast.get_docstring(node)
    if not docstring:
        return ""
    lines = (f"    {line}".rstrip() for line in docstring.split("\n"))
    return f"{head}\n" + "\n".join(lines) + "\n"


def _call(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"{node.name}({bases})" if bases else node.name
    return f"{node.name}({ast.unparse(node.args)})"


def _without_repetitions(text: str, seen: set[str]) -> str:
    """The text without the paragraphs that came before, in it or in an earlier one."""
    kept = []
    for paragraph in text.rstrip("\n").split("\n\n"):
        if len(paragraph) < SHORT or paragraph not in seen:
            kept.append(paragraph)
            seen.add(paragraph)
    return "\n\n".join(kept).strip("\n") + "\n"
