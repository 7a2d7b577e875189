"""The server of the Attention tab: it hands a page the maps that were recorded, and nothing else.

    index                           which runs, tags and steps there are
    header?run=&tag=&step=          a step's header, checked
    layer?run=&tag=&step=&layer=    a layer's map, still gzipped: the page inflates what the shape allows
    scores?run=&tag=                the scores of every step
    static/<file>                   the page itself

What is not there is 404, what is wrong 400, and both say why: {"error": "..."}. Data is asked of
TensorBoard's data provider, which both of its loaders have. An address may carry t=<wall time>: by that
the maps of a run that was made anew are not taken for the old ones.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from tensorboard import errors
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from dashboard.attention_tab.recorded import Recorded, Step

PAGE = Path(__file__).parent / "static"
MIME = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
KEEP = 3600  # seconds that a browser may keep a step's maps


class AttentionPlugin(base_plugin.TBPlugin):
    """Reads the blob sequences that `dashboard.recording` writes, whatever run they are in."""

    plugin_name = "attention"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self.recorded = Recorded(context.data_provider, self.plugin_name)

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
            run: {tag: [[at.step, at.wall_time] for at in series] for tag, series in tags.items()}
            for run, tags in self.recorded.index(request.environ).items()
        }
        return _json(request, json.dumps({"runs": runs}))

    def header(self, request: Request) -> Response:
        at = self.step(request)
        header = self.recorded.header(request.environ, at) | {"wall_time": at.wall_time}
        return _json(request, json.dumps(header), expires=KEEP)

    def layer(self, request: Request) -> Response:
        at, layer = self.step(request), _number(request, "layer", int)
        if not 0 <= layer < len(at.values) - 1:
            raise errors.NotFoundError(f"layer {layer}: there are {len(at.values) - 1}, counted from 0")
        blob = self.recorded.blob(request.environ, at, layer + 1)
        return http_util.Respond(request, blob, "application/octet-stream", expires=KEEP)

    def scores(self, request: Request) -> Response:
        run, tag = _text(request, "run"), _text(request, "tag")
        steps, summaries = zip(*self.recorded.summaries(request.environ, run, tag), strict=True)
        places = {"steps": [at.step for at in steps], "wall_times": [at.wall_time for at in steps]}
        return _json(request, f'{json.dumps(places)[:-1]}, "headers": [{", ".join(summaries)}]}}')

    def step(self, request: Request) -> Step:
        when = _number(request, "t", float) if "t" in request.args else None
        run, tag = _text(request, "run"), _text(request, "tag")
        return self.recorded.step(request.environ, run, tag, _number(request, "step", int), when)


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
        return _json(request, json.dumps({"error": why}), code=code)

    return serve


def _file(path: Path) -> Callable:
    """A file of the page, whose name came from us."""
    return _app(lambda request: http_util.Respond(request, path.read_bytes(), MIME[path.suffix]))


def _json(request: Request, content: str, **how) -> Response:
    return http_util.Respond(request, content, "application/json", **how)


def _text(request: Request, name: str) -> str:
    value = request.args.get(name)
    if value is None:
        raise ValueError(f"{name}= is missing")
    return value


def _number(request: Request, name: str, kind: type) -> float:
    value = _text(request, name)
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name}={value[:40]}: no number, or not a whole one") from None
