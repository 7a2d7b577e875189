"""The server of the Attention tab: it hands a page the maps that were recorded, and nothing else.

    index                           which runs, tags and steps there are
    header?run=&tag=&step=          a step's header, checked
    layer?run=&tag=&step=&layer=    a layer's map, still gzipped: the page inflates what the shape allows
    scores?run=&tag=                the scores of every step
    static/<file>                   the page itself

What is not there is 404, what is wrong 400, and both say why: {"error": "..."}. Data is asked of
TensorBoard's data provider, which both of its loaders have. An address may carry t=<wall time>, so that the
maps of a run that was made anew are not taken from the browser's memory.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from tensorboard import errors, plugin_util
from tensorboard.backend import http_util
from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from dashboard.attention_tab.header import MOST, read_header

PAGE = Path(__file__).parent / "static"
MIME = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
KEEP = 3600  # seconds that a browser may keep a step's maps
MOST_BLOBS = 1 + MOST["layers"]
ALL = 1_000_000  # steps of a tag: whatever the loader has kept


class AttentionPlugin(base_plugin.TBPlugin):
    """Reads the blob sequences that `dashboard.recording` writes, whatever run they are in."""

    plugin_name = "attention"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self.data = context.data_provider

    def is_active(self) -> bool:
        return False  # TensorBoard finds out by itself that there is data of this plugin

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="Attention")

    def get_plugin_apps(self) -> dict[str, Callable]:
        answers = {"/index": self.index, "/header": self.header, "/layer": self.layer, "/scores": self.scores}
        files = [path for path in PAGE.iterdir() if path.suffix in MIME]
        apps = {route: _app(answer) for route, answer in answers.items()}
        return apps | {f"/static/{path.name}": _file(path) for path in files}

    def index(self, request: Request) -> Response:
        runs = {
            run: {tag: [[at.step, at.wall_time] for at in steps] for tag, steps in tags.items()}
            for run, tags in self.series(request).items()
        }
        return _json(request, {"runs": runs})

    def header(self, request: Request) -> Response:
        at = self.step(request)
        header = self.read_header(request, at)
        return _json(request, header | {"wall_time": at.wall_time}, expires=KEEP)

    def layer(self, request: Request) -> Response:
        at, layer = self.step(request), _whole(request, "layer")
        layers = self.read_header(request, at)["layers"]
        if not 0 <= layer < layers:
            raise errors.NotFoundError(f"layer {layer}: there are {layers}, counted from 0")
        blob = self.read(request, at, layer + 1)
        return http_util.Respond(request, blob, "application/octet-stream", expires=KEEP)

    def scores(self, request: Request) -> Response:
        series = self.one_series(request)
        return _json(
            request,
            {
                "steps": [at.step for at in series],
                "wall_times": [at.wall_time for at in series],
                "headers": [self.summary(request, at) for at in series],
            },
        )

    def summary(self, request: Request, at: provider.BlobSequenceDatum) -> dict | None:
        """What lines over training need of a step; None where it is damaged."""
        try:
            header = self.read_header(request, at)
        except (ValueError, LookupError, errors.PublicError):
            return None
        kept = {name: header[name] for name in ("scores", "ablation", "gain")}
        return kept | {"loss": fmean(header["loss"]) if header["loss"] else None}

    def step(self, request: Request) -> provider.BlobSequenceDatum:
        """The step that is asked for."""
        step = _whole(request, "step")
        found = [at for at in self.one_series(request) if at.step == step]
        if not found:
            raise errors.NotFoundError(f"step {step}")
        return found[0]

    def one_series(self, request: Request) -> list[provider.BlobSequenceDatum]:
        """The steps of the run and tag that are asked for."""
        run, tag = _text(request, "run"), _text(request, "tag")
        found = self.series(request, run, tag).get(run, {}).get(tag)
        if not found:
            raise errors.NotFoundError(f"tag {tag!r} of run {run!r}")
        return found

    def series(self, request: Request, run: str | None = None, tag: str | None = None) -> dict:
        """The steps of every run and tag, or of those asked for: {run: {tag: [BlobSequenceDatum]}}."""
        experiment = plugin_util.experiment_id(request.environ)
        # Other plugins' blobs are none of our business.
        ours = {"experiment_id": experiment, "plugin_name": self.plugin_name}
        context, one = plugin_util.context(request.environ), provider.RunTagFilter
        which = one(runs=None if run is None else [run], tags=None if tag is None else [tag])
        found = {}
        for run, tags in self.data.list_blob_sequences(context, **ours, run_tag_filter=which).items():
            # A shape of 10¹² blobs is quickly written, and reading it would make TensorBoard name each one.
            large = {name: made.max_length for name, made in tags.items() if made.max_length > MOST_BLOBS}
            if tag in large:
                raise ValueError(f"a step of {large[tag] - 1:,} maps; at most {MOST_BLOBS - 1} can be")
            if sound := tags.keys() - large:
                which = one(runs=[run], tags=sound)
                found |= self.data.read_blob_sequences(context, **ours, downsample=ALL, run_tag_filter=which)
        return found

    def read_header(self, request: Request, at: provider.BlobSequenceDatum) -> dict:
        if not at.values:
            raise ValueError("a step without a header")
        return read_header(self.read(request, at, 0), len(at.values))

    def read(self, request: Request, at: provider.BlobSequenceDatum, place: int) -> bytes:
        blob = self.data.read_blob(plugin_util.context(request.environ), blob_key=at.values[place].blob_key)
        if not isinstance(blob, bytes):
            raise ValueError(f"blob {place} is damaged: no bytes")
        return blob


def _app(answer: Callable[[Request], Response]) -> Callable:
    """`answer` as a WSGI application whose errors are answers too."""

    @Request.application
    def serve(request: Request) -> Response:
        try:
            return answer(request)
        except errors.PublicError as error:
            code, why = error.http_code, str(error)
        except ValueError as error:
            code, why = 400, str(error)
        except Exception as error:  # such as a run that was deleted between two questions
            logging.getLogger("tensorboard").warning("attention: %s", request.url, exc_info=True)
            code, why = 404, f"cannot be read: {type(error).__name__}"
        return _json(request, {"error": why}, code=code)

    return serve


def _file(path: Path) -> Callable:
    """A file of the page, whose name came from us."""
    return _app(lambda request: http_util.Respond(request, path.read_bytes(), MIME[path.suffix]))


def _json(request: Request, content: dict, **how) -> Response:
    return http_util.Respond(request, json.dumps(content), "application/json", **how)


def _text(request: Request, name: str) -> str:
    value = request.args.get(name)
    if value is None:
        raise ValueError(f"{name}= is missing")
    return value


def _whole(request: Request, name: str) -> int:
    value = _text(request, name)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value[:40]}: not a whole number") from None
