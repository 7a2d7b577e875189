"""What the terminal says while a model trains."""

import io

from dashboard import terminal


def test_the_time_left_does_not_count_the_first_step_which_may_compile(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    progress = terminal.Progress(100, out)
    progress.evaluated(0, 7.6, True, None)
    clock[0] = 60.0
    progress.step(1, 5.0, 10.0)
    clock[0] = 80.0
    progress.step(3, 4.0, 1234.0)  # ten seconds a step, 97 of them to come
    assert out.getvalue().splitlines() == [
        "step   0/100  val loss 7.6000",
        "step   1/100  loss 5.0000  val loss 7.6000 at 0  10 tokens/s",
        "step   3/100  loss 4.0000  val loss 7.6000 at 0  1,234 tokens/s  16:10 left",
    ]
