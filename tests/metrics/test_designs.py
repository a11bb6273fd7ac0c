"""One notion of a design: what opens a writing phase is what the versions' numbers and `n_designs` count."""

from __future__ import annotations

from phase_story import Story, kernel

from traceparse.metrics.changes import number_designs, work
from traceparse.metrics.phases import segment

HEAD = "class Model: pass\n" + "\n".join(f"shared line number {n}" for n in range(90))


def told() -> Story:
    """A kernel that passes and is tuned; another kernel is added to the same file; then the first one is taken up again."""
    story = Story()
    one, two = kernel("one"), kernel("two")
    story.write("solution.py", f"{HEAD}\n{one}")
    story.check(True)
    story.write("solution.py", f"{one}\n# faster", op="edit")
    story.write("solution.py", f"{HEAD}\n{one}\n{two}", op="edit")
    story.check(True)
    story.write("solution.py", f"{HEAD}\n{one}", op="revert")
    story.write("solution.py", "# faster still", op="edit")
    return story


def test_a_new_kernel_in_the_same_file_is_a_design_and_a_return_is_none() -> None:
    frames = told().frames()
    # To the replay all five texts look alike (design 0): most of the file stays.
    assert frames["kernels"]["design"].to_list() == [0, 0, 0, 0, 0]
    numbered = number_designs(frames)
    assert numbered["design"].to_list()[:3] == [0, 0, 1]
    assert numbered["design"].n_unique() == sum(change.design is not None for change in work(frames).changes) == 2


def test_each_design_opens_a_writing_phase_and_numbering_again_changes_nothing() -> None:
    frames = told().frames()
    again = frames | {"kernels": number_designs(frames)}
    assert segment(again)[0]["phase"].to_list() == segment(frames)[0]["phase"].to_list()
    assert segment(again)[0]["phase"].to_list().count("writing") == 2
    assert number_designs(again)["design"].to_list() == again["kernels"]["design"].to_list()
