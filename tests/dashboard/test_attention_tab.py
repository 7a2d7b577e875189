"""The tab's server in real TensorBoards, one with each loader: what is there, or 400, or 404, never 500."""

import gzip
import json
import shutil
import subprocess
import sys
import time
import warnings
from argparse import Namespace
from importlib.metadata import entry_points
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.base_plugin import TBContext
from torch.utils.tensorboard import SummaryWriter
from werkzeug.test import Client

import clearhead_attention
from dashboard import log_attention
from tests.board import tensorboard
from tests.dashboard.test_heads import random_weights
from tests.dashboard.test_recording import decoded, header

with warnings.catch_warnings():  # TensorBoard's copy of html5lib warns about itself
    warnings.simplefilter("ignore")
    from tensorboard import program
    from tensorboard.backend.application import TensorBoardWSGIApp
    from tensorboard.plugins.core.core_plugin import CorePluginLoader

    from dashboard.attention_tab import plugin

HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>", '"\\', "\u202e", "从前", "the", "\x00", "the"]
LOADERS = {"false": "", "true": "/some/where"}  # load_fast, path_prefix
WEIGHTS = random_weights(0, 3, 2, 8, 8)


def write(folder: Path, tag: str, blobs: list[bytes], *, plugin="attention", dims=None, kind=None, data=None):
    """A blob sequence with nothing checked."""
    dim = [tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in ([len(blobs)] if dims is None else dims)]
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING if kind is None else kind,
        string_val=blobs,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=dim),
    )
    metadata = summary_pb2.SummaryMetadata(
        plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin),
        data_class=summary_pb2.DATA_CLASS_BLOB_SEQUENCE if data is None else data,
    )
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
    with SummaryWriter(folder) as writer:
        writer._get_file_writer().add_summary(summary_pb2.Summary(value=[value]), 0)


def log(folder: Path, steps, tokens=HOSTILE, **how) -> None:
    with SummaryWriter(folder, **how) as writer:
        for step in steps:
            log_attention(writer, "attention/text", WEIGHTS, tokens, step, loss=[step] * 7)


DAMAGED = {  # tag: blobs, and how they are written
    "version": ([header(version=7), b"", b""], {}),
    "no json": ([b"\xff\x00", b"", b""], {}),
    "json bomb": ([b"[" * 500_000, b"", b""], {}),
    "large header": ([b" " * 1_000_001, b"", b""], {}),
    "absurd shape": ([header(layers=10**9), b"", b""], {}),
    "wrong shape": ([header(length=9), b"", b""], {}),
    "too few maps": ([header(), b""], {}),
    "not a number": ([header(gain=float("inf")), b"", b""], {}),
    "nothing": ([], {}),
    "many maps": ([header()] * 300, {}),
}
TORN = {  # what TensorBoard itself may drop
    "a trillion maps": ([header(), b"", b""], {"dims": [10**6, 10**6]}),
    "fewer than said": ([header()], {"dims": [3]}),
    "no dimension": ([header()], {"dims": []}),
    "negative": ([header(), b"", b""], {"dims": [-3]}),
    "numbers": ([], {"kind": types_pb2.DT_FLOAT, "dims": [3]}),
    "another class": ([header(), b"", b""], {"data": summary_pb2.DATA_CLASS_TENSOR}),
    "another plugin": ([header(), b"", b""], {"plugin": "images"}),
}


class Board:
    """What the tab's server answers."""

    def __init__(self, root: str, logdir: Path):
        self.root, self.logdir = root, logdir

    def get(self, route: str, **query) -> tuple[int, dict, bytes]:
        try:
            answer = urlopen(f"{self.root}/data/plugin/attention/{route}?{urlencode(query)}", timeout=60)
        except HTTPError as error:
            answer = error
        with answer:
            return answer.status, dict(answer.headers), answer.read()

    def json(self, route: str, **query) -> dict:
        status, headers, body = self.get(route, **query)
        assert status == 200, body
        assert headers["Content-Type"] == "application/json"
        assert headers["X-Content-Type-Options"] == "nosniff"
        return json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    def error(self, route: str, **query) -> tuple[int, str]:
        status, headers, body = self.get(route, **query)
        assert headers["Content-Type"] == "application/json" and body.count(b"\n") == 0
        return status, json.loads(body)["error"]

    def index(self) -> dict:
        return self.json("index")["runs"]

    def wait(self, until) -> None:
        """Until TensorBoard has read its files again."""
        for _ in range(300):
            try:
                if until(self):
                    return
            except (URLError, ConnectionError):
                pass
            time.sleep(0.2)
        pytest.fail("TensorBoard did not come to it within a minute")


@pytest.fixture(scope="module", params=LOADERS, ids=["python loader", "fast loader"])
def board(request, tmp_path_factory):
    fast, prefix = request.param, LOADERS[request.param]
    logdir = tmp_path_factory.mktemp("board") / "logs"
    log(logdir / "sound", range(0, 40, 2))
    log(logdir / "group" / "two", [5])
    log(logdir / "resumed", [0, 10, 20, 30], purge_step=0)
    for tag, (blobs, how) in (DAMAGED | TORN).items():
        write(logdir / "damaged", tag, blobs, **how)
    write(logdir / "bomb", "bomb", [header(), gzip.compress(bytes(50_000_000)), b"no gzip"])
    time.sleep(1.1)  # event files are read in the order of their names, which count seconds
    log(logdir / "resumed", [15, 25], HOSTILE[::-1], purge_step=11)
    with tensorboard(logdir, f"--load_fast={fast}", f"--path_prefix={prefix}") as root:
        board = Board(root + prefix, logdir)
        board.wait(lambda board: {"sound", "group/two", "resumed", "damaged", "bomb"} <= set(board.index()))
        time.sleep(2)
        yield board


def test_the_tab_is_there_and_active(board):
    with urlopen(f"{board.root}/data/plugins_listing") as answer:
        listed = json.load(answer)["attention"]
    assert listed["enabled"] and listed["tab_name"] == "Attention"
    assert listed["loading_mechanism"]["module_path"].endswith("/data/plugin/attention/static/index.js")


def test_all_steps_are_kept_though_tensorboard_s_default_is_ten(board):
    series = board.index()["sound"]["attention/text"]
    assert [step for step, _ in series] == list(range(0, 40, 2))
    assert all(abs(time.time() - when) < 600 for _, when in series)


@pytest.mark.parametrize("t", [False, True], ids=["first", "again"])
def test_what_was_recorded_comes_back(board, t):
    where = {"run": "sound", "tag": "attention/text", "step": 8}
    when = next(when for step, when in board.index()["sound"]["attention/text"] if step == 8)
    more = {"t": when} if t else {}
    head = board.json("header", **where, **more)
    assert (head["layers"], head["heads"], head["length"], head["wall_time"]) == (3, 2, 8, when)
    maps = [board.get("layer", **where, **more, layer=layer) for layer in range(3)]
    assert {(status, at["Content-Type"], at.get("Content-Encoding")) for status, at, _ in maps} == {
        (200, "application/octet-stream", None)
    }
    weights = decoded(head, [gzip.decompress(body) for _, _, body in maps])
    assert (weights - WEIGHTS).abs().max() <= 1 / 255


def test_hostile_tokens_are_text(board):
    head = board.json("header", run="sound", tag="attention/text", step=0)
    assert head["tokens"][:4] == ["<img·src=x·onerror=alert(1)>", "</script><script>", '"\\', "\\u202e"]
    assert head["tokens"][4:] == ["从前", "the", "\\x00", "the"]


def test_scores_of_all_steps_come_in_one_answer(board):
    for _ in range(2):  # the second from memory
        found = board.json("scores", run="sound", tag="attention/text")
        assert found["steps"] == list(range(0, 40, 2)) and len(found["wall_times"]) == 20
        assert [head["loss"] for head in found["headers"]] == found["steps"]
        head = board.json("header", run="sound", tag="attention/text", step=4)
        assert found["headers"][2]["scores"] == head["scores"] and found["headers"][2]["ablation"] is None
    assert board.json("scores", run="damaged", tag="version")["headers"] == [None]


def test_a_resumed_run_has_each_step_once(board):
    assert [step for step, _ in board.index()["resumed"]["attention/text"]] == [0, 10, 15, 25]
    heads = [board.json("header", run="resumed", tag="attention/text", step=step) for step in (10, 15)]
    assert heads[0]["tokens"] == heads[1]["tokens"][::-1] != heads[1]["tokens"]


@pytest.mark.parametrize("tag", DAMAGED)
def test_damaged_data_is_400_and_says_why(board, tag):
    status, why = board.error("header", run="damaged", tag=tag, step=0)
    assert status == 400 and why
    if tag == "version":
        assert "version 7 of the format, and this tab reads version 1" in why


@pytest.mark.parametrize("tag", TORN)
@pytest.mark.parametrize("route", ["header", "layer", "scores"])
def test_torn_data_is_never_500_and_that_of_others_404(board, tag, route):
    status, _, body = board.get(route, run="damaged", tag=tag, step=0, layer=0)
    if tag.startswith("another"):
        assert status == 404 and tag not in board.index()["damaged"]
    elif status == 200 and route == "header":  # one loader ignores shapes, one fills them up
        assert json.loads(body)["tokens"] == ["a", "b"]
    else:
        assert status in (200, 400, 404)


def test_a_bomb_is_handed_over_as_it_is(board):
    status, _, body = board.get("layer", run="bomb", tag="bomb", step=0, layer=0)
    assert status == 200 and len(body) < 1_000_000
    assert board.get("layer", run="bomb", tag="bomb", step=0, layer=1)[2] == b"no gzip"


WHERE = {"run": "sound", "tag": "attention/text", "step": 0, "layer": 0}
TAKES = {"header": ("run", "tag", "step", "t"), "layer": (*WHERE, "t"), "scores": ("run", "tag")}


@pytest.mark.parametrize("name", WHERE)
def test_a_missing_key_is_400(board, name):
    for route in TAKES:
        if name in TAKES[route]:
            rest = {key: value for key, value in WHERE.items() if key != name}
            assert board.error(route, **rest) == (400, f"{name}= is missing")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"step": "x"}, 400),
        ({"step": ""}, 400),
        ({"step": "9" * 5000}, 400),
        ({"step": "1e3"}, 400),
        ({"layer": "0.5"}, 400),
        ({"t": "yesterday"}, 400),
        ({"step": 1}, 404),
        ({"step": 10**30}, 404),
        ({"step": -1}, 404),
        ({"layer": 3}, 404),
        ({"layer": -1}, 404),
        ({"run": "nobody"}, 404),
        ({"run": ""}, 404),
        ({"run": "../sound"}, 404),
        ({"run": "sound\x00"}, 404),
        ({"tag": "attention/"}, 404),
        ({"tag": "train/loss"}, 404),
        ({"tag": b"\xff\xfe"}, 404),
        ({"tag": "x" * 20_000}, 404),
    ],
    ids=lambda value: str(value)[:40],
)
def test_malformed_keys_are_400_and_unknown_ones_404(board, changed, expected):
    (name,) = changed
    for route in TAKES:
        status, *_ = board.get(route, **WHERE | changed)
        assert status == (expected if name in TAKES[route] else 200), route


def test_the_page_s_files_and_no_others(board):
    for path in plugin.PAGE.iterdir():
        status, headers, body = board.get(f"static/{path.name}")
        if path.suffix in plugin.MIME:
            assert (status, body) == (200, path.read_bytes())
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Content-Type"].startswith(plugin.MIME[path.suffix])
        else:
            assert status == 404
    for name in ["../plugin.py", "%2e%2e/plugin.py", "..%2fplugin.py", "", ".", "/etc/passwd", "index.js%00"]:
        assert board.get(f"static/{name}")[0] == 404


def test_a_run_being_written_grows(board):
    def steps(board) -> int:
        return len(board.index().get("growing", {}).get("attention/text", []))

    with SummaryWriter(board.logdir / "growing") as writer:
        for step in range(3):
            log_attention(writer, "attention/text", WEIGHTS, HOSTILE, step)
            writer.flush()
            board.wait(lambda board, n=step + 1: steps(board) == n)
            assert board.json("header", run="growing", tag="attention/text", step=step)["length"] == 8


def test_a_run_deleted_is_gone_and_made_anew_it_shows_what_is_new(board):
    where = {"run": "again", "tag": "attention/text", "step": 0}

    def latest() -> float:
        return board.index()["again"]["attention/text"][0][1]

    log(board.logdir / "again", [0])
    board.wait(lambda board: "again" in board.index())
    old = latest()
    assert board.json("header", **where, t=old)["tokens"][4] == "从前"
    shutil.rmtree(board.logdir / "again")
    board.wait(lambda board: "again" not in board.index())
    assert board.error("header", **where, t=old)[0] == 404
    assert board.error("layer", **where, layer=0, t=old)[0] == 404
    log(board.logdir / "again", [0], list("abcdefgh"))
    board.wait(lambda board: "again" in board.index())
    assert latest() > old
    assert board.json("header", **where, t=latest())["tokens"] == list("abcdefgh")
    assert board.json("scores", run="again", tag="attention/text")["wall_times"] == [latest()]


def flags(*words: str) -> Namespace:
    made = program.TensorBoard(plugins=[CorePluginLoader(), clearhead_attention.Loader()])
    made.configure(argv=["", "--logdir", "nowhere", *words])
    return made.flags


def test_what_the_user_says_about_samples_is_kept_to():
    assert flags().samples_per_plugin == {"attention": 1000}
    words = "--samples_per_plugin=attention=5,images=7"
    assert flags(words).samples_per_plugin == {"attention": 5, "images": 7}
    assert flags("--samples_per_plugin=images=7").samples_per_plugin == {"attention": 1000, "images": 7}


def test_the_entry_point_has_a_name_of_its_own_and_imports_only_tensorboard():
    (found,) = entry_points(group="tensorboard_plugins", name="clearhead_attention")
    assert found.load() is clearhead_attention.Loader
    code = """if True:
        import sys, clearhead_attention
        assert not {"torch", "matplotlib", "hydra", "dashboard", "model"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def tabs(loader) -> list[str]:
    """The plugins of a TensorBoard with this loader and nobody's data."""
    app = TensorBoardWSGIApp(flags(), [CorePluginLoader(), loader])
    while not hasattr(app, "_plugins"):  # middleware
        app = app._application if hasattr(app, "_application") else app.__closure__[0].cell_contents
    return [one.plugin_name for one in app._plugins]


def test_no_fault_after_the_import_stops_tensorboard(monkeypatch):
    loader = clearhead_attention.Loader()
    loader.fix_flags(None)
    loader.fix_flags(Namespace(samples_per_plugin=3))
    assert "attention" in tabs(loader)
    for module in ("dashboard.attention_tab.plugin", "dashboard.attention_tab.recorded"):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "dashboard.attention_tab.plugin")
            patch.setitem(sys.modules, module, None)  # its import fails
            assert "attention" not in tabs(loader)
    with monkeypatch.context() as patch:
        patch.setattr(plugin, "PAGE", Path("nowhere"))
        assert "attention" in tabs(loader)


def test_another_s_plugin_of_that_name_is_left_alone():
    context = TBContext(plugin_name_to_instance={"attention": object()})
    assert clearhead_attention.Loader().load(context) is None


def test_an_unforeseen_fault_is_an_answer_too(tmp_path, caplog):
    class Broken:
        def list_blob_sequences(self, *args, **more):
            raise RuntimeError("out of luck")

    tab = plugin.AttentionPlugin(TBContext(data_provider=Broken()))
    answer = Client(tab.get_plugin_apps()["/index"]).get("/")
    assert answer.status_code == 404 and answer.json == {"error": "cannot be read: RuntimeError"}
    assert "out of luck" in caplog.text
