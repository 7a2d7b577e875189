"""What has been recorded, asked of TensorBoard's data provider, which both of its loaders have.

The fast loader's answers can take 40 ms each, however short they are: its socket waits to be acknowledged. So
nothing is asked twice that cannot have changed, and many things are asked at once.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import fmean

from tensorboard import errors, plugin_util
from tensorboard.data import provider

from dashboard.attention_tab.header import MOST, read_header

Step = provider.BlobSequenceDatum
MOST_BLOBS = 1 + MOST["layers"]
ALL = 1_000_000  # steps of a tag: as many as the loader has kept
AT_ONCE = 16


class Recorded:
    """The steps of every run and tag. `environ` is the request's: it says which experiment is meant.

    NotFoundError for what is not there, ValueError for what is damaged.
    """

    def __init__(self, data: provider.DataProvider, plugin_name: str) -> None:
        self.data, self.plugin_name = data, plugin_name
        self.seen: dict[tuple, Step] = {}  # by run, tag, step and wall time
        self.summed: dict[tuple, dict[Step, str]] = {}  # by run and tag; less than what TensorBoard holds

    def index(self, environ: dict) -> dict[str, dict[str, list[Step]]]:
        """Every step: {run: {tag: [step]}}."""
        found = self._read(environ, None, None)
        self.seen = dict(_named(found))  # and no longer what has been deleted
        return found

    def series(self, environ: dict, run: str, tag: str) -> list[Step]:
        found = self._read(environ, run, tag)
        self.seen |= _named(found)
        if not (series := found.get(run, {}).get(tag)):
            raise errors.NotFoundError(f"tag {tag!r} of run {run!r}")
        return series

    def step(self, environ: dict, run: str, tag: str, step: int, wall_time: float | None) -> Step:
        """One step. With a known wall time it is where it was."""
        if known := self.seen.get((run, tag, step, wall_time)):
            return known
        found = [at for at in self.series(environ, run, tag) if at.step == step]
        if not found:
            raise errors.NotFoundError(f"step {step}")
        return found[0]

    def blob(self, environ: dict, at: Step, place: int) -> bytes:
        blob = self.data.read_blob(plugin_util.context(environ), blob_key=at.values[place].blob_key)
        if not isinstance(blob, bytes):
            raise ValueError(f"blob {place} is damaged: no bytes")
        return blob

    def header(self, environ: dict, at: Step) -> dict:
        if not at.values:
            raise ValueError("a step without a header")
        return read_header(self.blob(environ, at, 0), len(at.values))

    def summaries(self, environ: dict, run: str, tag: str) -> Iterator[tuple[Step, str]]:
        """Each step, and what lines over training need of it, as JSON; null where it is damaged."""
        series, known = self.series(environ, run, tag), self.summed.get((run, tag), {})
        new = [at for at in series if at not in known]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = dict(zip(new, pool.map(lambda at: self._summary(environ, at), new), strict=True))
        known = {at: made.get(at) or known.get(at) for at in series}
        self.summed[run, tag] = {at: summary for at, summary in known.items() if summary}
        return ((at, summary or "null") for at, summary in known.items())

    def _summary(self, environ: dict, at: Step) -> str | None:
        with suppress(ValueError, LookupError, errors.PublicError):
            header = self.header(environ, at)
            kept = {name: header[name] for name in ("scores", "ablation", "gain")}
            return json.dumps(kept | {"loss": fmean(header["loss"]) if header["loss"] else None})
        return None

    def _read(self, environ: dict, run: str | None, tag: str | None) -> dict[str, dict[str, list[Step]]]:
        """Those steps of this plugin; other plugins' blobs are none of its business."""
        context, some = plugin_util.context(environ), provider.RunTagFilter
        ours = {"experiment_id": plugin_util.experiment_id(environ), "plugin_name": self.plugin_name}
        asked = some(runs=None if run is None else [run], tags=None if tag is None else [tag])
        sound, damaged = [], set()
        for name, tags in self.data.list_blob_sequences(context, **ours, run_tag_filter=asked).items():
            # A shape of 10¹² blobs is quickly written, and reading it would make TensorBoard name each one.
            large = {one for one, series in tags.items() if series.max_length > MOST_BLOBS}
            damaged |= {(name, one) for one in large}
            sound += [some(runs=[name], tags=tags.keys() - large)] if tags.keys() - large else []
        if (run, tag) in damaged:
            raise ValueError(f"a step of more than {MOST['layers']} maps")
        found = {}
        for these in sound if damaged else [asked]:
            found |= self.data.read_blob_sequences(context, **ours, downsample=ALL, run_tag_filter=these)
        return found


def _named(found: dict[str, dict[str, list[Step]]]) -> Iterator[tuple[tuple, Step]]:
    return (
        ((run, tag, at.step, at.wall_time), at)
        for run, tags in found.items()
        for tag, series in tags.items()
        for at in series
    )
