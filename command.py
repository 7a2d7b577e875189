"""The command line: words (`key=value`) become checked settings, through Hydra's compose API.

    words ── read ──► {key: value} ── compose (Hydra) ──► flat values ── a saved run's ── build ──► dataclass

Hydra sees conf/ and the words in its own grammar, nothing else: texts and saved runs go round it, so `$`,
`???`, quotes and every language arrive as they were typed. No other file imports Hydra, and this one only
where it composes, so that --help takes a tenth of a second.
"""

import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import settings
from jobs import run_jobs
from saved import over_saved
from settings import Program, Wrong, leaves
from usage import help_text

TEXTS = ["prompt", "prompt_file", "stop", "out", "run", "checkpoint", "run_dir"]
TEXTS += ["resume", "init_from", "like", "data.path", "data.val_path", "data.separator", "tokenizer.path"]
ESCAPED = ("stop", "data.separator")  # here \n and \t mean the characters
HOW = "settings are written key=value; see --help"

# All that depends on the wording of Hydra 1.3, whose exceptions do not carry these two facts.
IN_FILE = re.compile(r"^In '?(.+?)'?: ")
NO_OVERRIDE = re.compile(r"Could not override '(.+?)'")


def configure(program: Program, words: list[str]) -> Any:
    """The program's settings. Raises Wrong, whatever is wrong with the words or with a file they name."""
    given = read(program, words)
    if given.get("experiment") == "null":
        del given["experiment"]
    for group, choices in program.groups.items():
        if group in given and given[group] not in choices:
            raise settings.no_choice(group, given[group], choices)
    texts = {key: text(key, value) for key, value in given.items() if is_text(program, key, value)}
    values = compose(program, given | dict.fromkeys(texts, "text")) | texts
    for key in given.keys() - texts.keys():
        if "${" in given[key] and any(values.get(origin) for origin in settings.ORIGINS):
            raise Wrong(f"{key}={given[key]}: a saved run has plain values only; write the value itself")
    try:
        return settings.build(program.schema, over_saved(program.schema, values, list(given), program.groups))
    except ValueError as error:  # a Wrong, which stays as it is, or from a dataclass's __post_init__
        raise Wrong(str(error)) from error


def read(program: Program, words: list[str]) -> dict[str, str]:
    """The words as {key: value}, every key known. Of a key typed twice the last counts, as in other programs:
    a shell alias stays useful with one more word behind it."""
    given = {}
    known = leaves(program.schema)
    for word in words:
        key, equals, value = word.partition("=")
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # Python's stand-ins for stray bytes
            raise Wrong(f"{word!r}: not UTF-8 text")
        if word.startswith("-"):
            raise Wrong(f"{key}: not an option", HOW)
        if word[:1] in ("+", "~") or "@" in key:
            raise Wrong(f"{word}: + ++ ~ and @ are not used here", HOW)
        if not (equals and key and key.isprintable()):
            hint = HOW if equals or "prompt" not in known else f"did you mean prompt={word!r}?"
            raise Wrong(f"{word!r}: not a setting", hint)
        if key not in known and key not in program.groups:
            raise settings.no_setting(key, program.schema, program.groups)
        if key not in TEXTS and not value.isprintable():
            raise Wrong(f"{word!r}: cannot be read")
        given.pop(key, None)
        given[key] = value
    return given


def is_text(program: Program, key: str, value: str) -> bool:
    """Whether a value goes round Hydra, whose grammar knows no letters but ASCII, and no empty text."""
    if key in TEXTS or key in program.groups:
        return key in TEXTS
    return settings.kind_of(leaves(program.schema)[key]) is str and not (value and value.isascii())


def text(key: str, value: str) -> str:
    """A literal text; only a prompt may be empty."""
    if not value and key != "prompt":
        raise Wrong(f"{key}= is empty")
    return value.replace(r"\n", "\n").replace(r"\t", "\t") if key in ESCAPED else value


# Hydra ────────────────────────────────────────────────────────────────────────────────────────────────────


def compose(program: Program, given: dict[str, str]) -> dict[str, Any]:
    """Flat values: dataclass < conf/<group>/<choice>.yaml < conf/<config>.yaml < experiment < words."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    words = []
    for key, value in given.items():
        words.append(f"{key}='{value}'" if key in program.groups else f"{key}={value}")
        if parse(words[-1]).is_sweep_override():
            raise Wrong(f"{words[-1]}: several values need -m")
    ConfigStore.instance().store(name="schema", node=program.schema)
    try:
        if program.config:
            place = hydra.initialize_config_dir(str(program.conf), version_base="1.3")
        else:
            place = hydra.initialize(None, version_base="1.3")
        with place:
            composed = hydra.compose(program.config or "schema", words)
        return settings.flatten(OmegaConf.to_container(composed, resolve=True, throw_on_missing=True))
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError, RecursionError) as error:
        raise translated(program, given, error) from error


def parse(word: str) -> Any:
    """One word in Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        hint = f"special characters stand in quotes: '{word.partition('=')[0]}=\"...\"'"
        raise Wrong(f"{word}: cannot be read", hint) from error


def translated(program: Program, given: dict[str, str], error: Exception) -> Wrong:
    """What Hydra refused, in our words and under the file's name; the facts stand in its exceptions."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, ValidationError
    from yaml import YAMLError

    # OmegaConf's own exception stands in __context__, not in __cause__, of Hydra's
    behind = (error, error.__cause__, error.__context__)
    cause = next((e for e in behind if getattr(e, "full_key", None) is not None), error)
    key, known, groups = getattr(cause, "full_key", ""), leaves(program.schema), program.groups
    file = at_fault(program, given, error, key)
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        wrong = settings.no_choice(group, name, groups.get(group, []))
    elif found := NO_OVERRIDE.search(str(error)):
        hint = settings.meant(found[1], list(groups))
        wrong = Wrong(f"{found[1]}: no such group{hint}", f"groups: {' '.join(groups)}")
    elif isinstance(cause, ConfigKeyError | ConfigAttributeError):
        misplaced = "has no settings, or its first line is not `# @package _global_`"
        wrong = Wrong(misplaced) if key in groups else settings.no_setting(key, program.schema, groups)
    elif isinstance(cause, ValidationError) and key in known:
        wrong = settings.not_that_kind(key, cause.value if file else given[key], known[key])
    elif isinstance(error, YAMLError):
        wrong = Wrong(settings.yaml_fault(error))
    elif isinstance(error, RecursionError):
        wrong = Wrong("refers to itself")
    else:
        line = IN_FILE.sub("", str(cause)).splitlines()[0]
        wrong = Wrong(f"{key}: {line}" if key else line)
    return Wrong(f"{file}{wrong}")


def at_fault(program: Program, given: dict[str, str], error: Exception, key: str) -> str:
    """'conf/experiment/x.yaml: ', or nothing if it was a word on the command line."""
    if mark := getattr(error, "problem_mark", None):
        return f"{Path(mark.name).relative_to(program.conf.parent).as_posix()}: "
    found = IN_FILE.search(str(error))
    if key in given and not found:
        return ""
    file = found[1] if found else program.config
    if file == program.config and "experiment" in given:  # Hydra blames the root for an experiment's choices
        file = f"experiment/{given['experiment']}"
    return f"conf/{file}.yaml: "


# Sweeps ───────────────────────────────────────────────────────────────────────────────────────────────────


def sweep(program: Program, words: list[str]) -> list[list[str]]:
    """The words of every job, the last word changing fastest."""
    given = read(program, words)
    columns = [[f"{key}={one}" for one in alternatives(program, key, value)] for key, value in given.items()]
    return [list(job) for job in product(*columns)]


def alternatives(program: Program, key: str, value: str) -> list[str]:
    """The values that one word stands for: a,b or range(), choice() and glob() in Hydra's grammar. A text is
    in that grammar only if it holds a comma or a parenthesis; quotes keep these."""
    from hydra.core.override_parser.types import Glob, QuotedString, Transformer
    from hydra.errors import HydraException

    plain = key in program.groups or is_text(program, key, value)
    if plain and not {",", "("} & set(value):
        return [value]
    override = parse(f"{key}={value}")
    if not override.is_sweep_override():
        return [str(override.value())] if plain else [value]
    if isinstance(override.value(), Glob):
        chosen = override.value().filter(program.groups.get(key, []))
        if not chosen:
            raise Wrong(f"{key}={value}: matches no file in conf/{key}/")
        return chosen
    try:
        found = list(override.sweep_iterator())
    except HydraException as error:
        raise Wrong(f"{key}={value}: cannot be enumerated", "a,b choice(a,b) range(1,4) glob(a*)") from error
    if plain:
        return [one.text if isinstance(one, QuotedString) else str(one) for one in found]
    return [Transformer.str(one) for one in found]


# The edge ─────────────────────────────────────────────────────────────────────────────────────────────────


def run(program: Program, main: Callable[[Any], int | None], words: list[str] | None = None) -> NoReturn:
    """The whole program: exit 0, 2 (Wrong, on standard error), 130 (interrupted), or what `main` returns; any
    other exception of `main` keeps its traceback and exits 1. What it prints is UTF-8 on every system."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # whoever put another stream in its place decides for it
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = act(program, main, sys.argv[1:] if words is None else words)
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # the reader, `head` say, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would fail again
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Wrong as wrong:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
        if os.environ.get("RANK", "0") == "0":
            print(f"{Path(program.file).name}: {wrong}", file=sys.stderr, flush=True)
        else:
            time.sleep(2)  # torchrun kills all at the first exit, rank 0 before it has spoken
        sys.exit(2)


def act(program: Program, main: Callable[[Any], int | None], words: list[str]) -> int | None:
    if "--help" in words or "-h" in words:
        return print(help_text(program))
    sweeping, showing = bool({"-m", "--multirun"} & set(words)), "--cfg" in words
    words = [word for word in words if word not in ("-m", "--multirun")]
    if showing:
        at = words.index("--cfg")
        if words[at + 1 : at + 2] != ["job"]:
            raise Wrong("--cfg: only --cfg job is known here")
        del words[at : at + 2]
    if sweeping and "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise Wrong("-m starts one process after the other, torchrun several at once; use one of them")
    jobs = sweep(program, words) if sweeping else [words]
    configs = [configure(program, job) for job in jobs]
    if showing:
        return print("---\n".join(settings.as_yaml(asdict(config)) for config in configs).rstrip())
    return run_jobs(Path(program.file), jobs) if sweeping else main(configs[0])
