"""Text as it is being generated: whole characters only, up to a stop string."""

from data.tokenizer import Tokenizer

PARTIAL = "\ufffd"  # how decoding writes bytes that are no character, or not yet


class TextStream:
    """Ids in, text out: the pieces from `feed` and `flush`, joined, are `decode` of all the ids, cut
    before the first `stop`. Bytes of an unfinished character wait, and so does what may become `stop`."""

    def __init__(self, tokenizer: Tokenizer, stop: str | None = None):
        self.tokenizer, self.stop = tokenizer, stop
        self.stopped = False
        self._ids: list[int] = []  # the last one shown, which some decoders need to see, and those after it
        self._shown = 0  # characters of these ids that have been passed on
        self._held = ""  # text that may be the beginning of `stop`

    def feed(self, id: int) -> str:
        self._ids.append(int(id))
        text, waiting = self.tokenizer.decode(self._ids), 0
        if text.endswith(PARTIAL):
            # A character has four bytes at most: what stands before the last three ids will not change.
            whole, waiting, text = text, 3, self.tokenizer.decode(self._ids[:-3])
            if len(self._ids) <= 4 or not whole.startswith(text):
                return ""
        new = text[self._shown :]
        self._ids = self._ids[-1 - waiting :]
        self._shown = len(self.tokenizer.decode(self._ids[:1]))
        return self._until_stop(new)

    def flush(self) -> str:
        """What is still waiting, when no more ids will come."""
        text = self._until_stop(self.tokenizer.decode(self._ids)[self._shown :]) + self._held
        self._ids, self._shown, self._held = [], 0, ""
        return text

    def _until_stop(self, new: str) -> str:
        if self.stopped or not self.stop:
            return "" if self.stopped else new
        text = self._held + new
        before, found, _ = text.partition(self.stop)
        if found:
            self.stopped, self._held = True, ""
            return before
        waiting = min(len(text), len(self.stop) - 1)
        while not self.stop.startswith(text[len(text) - waiting :]):
            waiting -= 1
        self._held = text[len(text) - waiting :]
        return text[: len(text) - waiting]
