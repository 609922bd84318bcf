"""What was seen becomes findings: each fault said where it was seen, and silence where it was not."""

from __future__ import annotations

import pytest

from webhook.rehearsal.judge import Seen, judge, went_on_from
from webhook.rehearsal.model import Compared, Inside, Opened, Part, Save, Settings, Start
from webhook.runs.layouts import Saved


def saved(step: int, path: str = "") -> Saved:
    return Saved(path or f"step_{step}.json", "file", step, 10, float(step), None)


def save(step: int, path: str = "", at: float = 0.0) -> Save:
    return Save(saved(step, path), step, at, at)


def starts() -> list[Start]:
    """A program that does all of it right: 4, 5 on SIGTERM, then 8, then 12."""
    pids = Inside(pids=(1,))
    return [
        Start(1, saves=[save(4), save(5)], signal="SIGTERM", heard=True, ended="exited", code=0, inside=pids),
        Start(2, (saved(5),), save(5), ["step_5.json"], [save(8)], "SIGKILL", order="renamed", inside=pids),
        Start(3, (saved(5), saved(8)), save(8), ["step_8.json"], [save(12)], "SIGKILL", inside=pids),
    ]


def rules(some: list[Start], compared: Compared | None = None, **more: object) -> list[str]:
    seen = Seen(Settings(("python",), grace=1.0), some, compared=compared)
    for name, value in more.items():
        setattr(seen, name, value)
    return [one.rule for one in judge(seen).findings]


def test_a_run_that_goes_on_is_not_accused() -> None:
    report = judge(Seen(Settings(("python",)), starts()))
    assert (report.verdict, report.findings, report.lost, report.code) == ("resumed", [], 0, 0)
    assert [went_on_from(start) for start in report.starts[1:]] == [5, 8]


def test_nothing_read() -> None:
    some = starts()
    some[1].read, some[1].saves = [], [save(4)]
    assert rules(some) == ["never-resumed"]
    report = judge(Seen(Settings(("python",)), some))
    assert (report.code, report.lost) == (1, 5)


def test_nothing_is_said_of_reads_that_nobody_could_see() -> None:
    some = starts()
    for start in some:
        start.inside, start.reads_seen, start.read = Inside(), False, []
    assert rules(some) == []
    assert any("reads were not seen" in note for note in judge(Seen(Settings(("x",)), some)).notes)


def test_what_goes_on_without_a_read_that_was_seen_goes_on() -> None:
    some = starts()
    some[1].read = []
    assert rules(some) == []


@pytest.mark.parametrize(("read", "rule"), [("step_4.json", "fixed-resume-path"), ("step_9.json", "text-order-resume")])
def test_another_than_the_newest(read: str, rule: str) -> None:
    some = starts()
    some[2].before = (saved(4), saved(9), saved(10))
    some[2].newest, some[2].read = save(10), [read]
    assert rules(some) == [rule]


def test_the_one_before_is_right_where_the_kill_came_before_the_programs_own_mark() -> None:
    some = starts()
    some[1].saves = [save(8), save(12)]
    some[2].before, some[2].newest, some[2].read = (saved(5), saved(8), saved(12)), save(12), ["step_8.json"]
    assert rules(some) == []
    assert went_on_from(some[2]) == 8
    some[2].read = ["step_5.json"]
    assert rules(some) == ["fixed-resume-path"]


def test_both_read_is_no_fault() -> None:
    some = starts()
    some[2].read = ["step_5.json", "step_8.json"]
    assert rules(some) == []


def test_the_step_begins_anew() -> None:
    some = starts()
    some[1].saves = [save(4)]
    assert rules(some) == ["step-not-restored"]
    assert went_on_from(some[1]) == 0


def test_half_an_epoch_is_saved_again() -> None:
    some = starts()
    for start in some[1:]:
        epoch = Saved("epoch_2.json", "file", 2, 10, 2.0, None, unit="epoch")
        start.before, start.newest, start.read = (epoch,), Save(epoch, 2), ["epoch_2.json"]
        start.saves = [Save(epoch, 2)]
    assert rules(some) == []


def torn(some: list[Start], over: bool) -> list[Start]:
    some[1].torn, some[1].torn_over, some[1].cut = ["step_8.json"], over, True
    some[2].newest, some[2].read = (None if over else save(5)), ["step_8.json"]
    return some


@pytest.mark.parametrize(("over", "rule"), [(False, "torn-newest"), (True, "overwritten-checkpoint")])
def test_a_torn_checkpoint_stops_it(over: bool, rule: str) -> None:
    some = torn(starts(), over)
    some[2].saves, some[2].code = [], 1
    assert rules(some) == [rule]
    some[2].code, some[2].saves = None, [save(4)]
    assert rules(some) == [rule]


def test_one_that_never_resumes_is_not_stopped_by_what_is_torn() -> None:
    some = torn(starts(), False)
    some[1].read, some[1].saves = [], []
    some[2].read, some[2].saves = [], [save(4)]
    assert rules(some) == ["never-resumed"]


def test_one_that_looks_further_is_not_stopped() -> None:
    some = torn(starts(), False)
    some[2].read, some[2].saves = ["step_8.json", "step_5.json"], [save(8)]
    assert rules(some) == []


def test_a_restart_that_fails_on_a_whole_checkpoint() -> None:
    some = starts()[:2]
    some[1].saves, some[1].code, some[1].lines = [], 1, ["KeyError: 'step'"]
    assert rules(some) == ["restart-failed"]


@pytest.mark.parametrize(("apart", "expected"), [(5.0, ["no-flush-on-sigterm"]), (0.5, [])])
def test_sigterm_matters_where_the_next_save_comes_after_the_grace_period(apart: float, expected: list[str]) -> None:
    some = starts()
    some[0].heard, some[0].ended = False, "died"
    some[2].saves = [save(12, at=1.0), save(16, at=1.0 + apart)]
    assert rules(some) == expected
    assert judge(Seen(Settings(("x",), grace=1.0), some)).verdict == "resumed"


def test_ranks() -> None:
    some = starts()
    folder = "/tmp/r/checkpoints"
    some[0].inside.opened = [Opened(1.0, f"{folder}/step_4.json", "w", rank) for rank in (0, 1)]
    assert rules(some) == ["unguarded-rank-write"]
    some = starts()
    some[2].inside = Inside(pids=(1,))
    some[2].saves[0].began = 2.0
    some[2].inside.opened = [Opened(1.0, f"{folder}/step_{step}.json", "r", rank) for rank, step in ((0, 8), (1, 5))]
    assert rules(some) == ["ranks-resume-apart"]


def test_ranks_with_files_of_their_own() -> None:
    some = starts()
    paths = ("rank-0/step_8.json", "rank-1/step_8.json")
    some[2].before = tuple(saved(8, path) for path in paths)
    some[2].newest, some[2].read = save(8, paths[1]), list(paths)
    some[2].saves[0].began = 2.0
    opened = [Opened(1.0, f"/tmp/r/checkpoints/{path}", "r", rank) for rank, path in enumerate(paths)]
    some[2].inside = Inside(pids=(1,), opened=opened)
    assert rules(some) == []


def first(filled: bool, schedulers: list[int], step: int = 1) -> dict[str, object]:
    return {"step": step, "name": "AdamW", "filled": filled, "schedulers": schedulers}


@pytest.mark.parametrize(
    ("filled", "at", "held", "rule"),
    [
        (True, 5, ["optimizer"], None),
        (False, 5, ["optimizer"], "optimizer-not-restored"),
        (False, 5, [], "weights-only-checkpoint"),
        (True, 0, ["optimizer"], "scheduler-not-restored"),
    ],
)
def test_torch_tells_what_was_restored(filled: bool, at: int, held: list[str], rule: str | None) -> None:
    some = starts()
    some[0].inside = Inside(pids=(1,), first=[first(False, [0]), first(True, [1], 2)])
    for start in some[1:]:
        start.inside = Inside(pids=(1,), first=[first(filled, [at])])
    assert rules(some, held={"optimizer": held, "weights": ["model"]}) == ([rule] if rule else [])


def test_an_optimizer_that_is_loaded_after_a_step_without_a_learning_rate_is_restored() -> None:
    some = starts()
    some[0].inside = Inside(pids=(1,), first=[first(False, [0]), first(True, [1], 2)])
    for start in some[1:]:
        start.inside = Inside(pids=(1,), first=[first(False, [1])], loads={"optimizer": ["AdamW"]})
    assert rules(some, held={"optimizer": ["optimizer"]}) == []


@pytest.mark.parametrize(
    ("part", "rule"), [("rng", "rng-not-restored"), ("data", "data-repeated"), ("scheduler", "scheduler-not-restored")]
)
def test_a_part_that_is_elsewhere_is_the_cause(part: str, rule: str) -> None:
    compared = Compared(12, (Part(part, False, ("x",), 1.0), Part("weights", False, ("w",), 1.0)))
    assert rules(starts(), compared) == [rule]


def test_weights_that_differ_without_a_cause_are_said() -> None:
    parts = (Part("weights", False, ("w",), 1.0), Part("optimizer", True))
    assert rules(starts(), Compared(12, parts), held={"optimizer": ["m"]}) == ["resume-differs"]
    assert rules(starts(), Compared(12, parts), held={"weights": ["w"]}) == ["weights-only-checkpoint"]
    assert rules(starts(), Compared(12, (Part("weights", True),))) == []


def test_what_is_never_taken_counts_where_it_must_be_or_the_runs_differ() -> None:
    assert rules(starts(), unread={"optimizer": ["m"]}) == ["optimizer-not-restored"]
    assert rules(starts(), unread={"step": ["step"], "other": ["loss"]}) == []


def test_saved_elsewhere() -> None:
    some = [Start(1, outside=["/work/out/step_4.json"])]
    assert rules(some) == ["directory-not-used"]


def test_a_new_folder_for_each_start() -> None:
    some = starts()
    some[1].before, some[1].newest = (saved(5, "run-1/step_5.json"),), save(5, "run-1/step_5.json")
    some[1].read, some[1].saves = [], [save(4, "run-2/step_4.json")]
    assert rules(some) == ["timestamped-directory"]


def test_a_new_folder_of_a_start_that_was_killed_amid_its_first_save() -> None:
    some = starts()
    some[1].before, some[1].newest = (saved(5, "run-1/step_5.json"),), save(5, "run-1/step_5.json")
    some[1].read, some[1].saves, some[1].torn, some[1].wrote = [], [], ["run-2/x.tmp"], "run-2/x.tmp"
    some[2].before, some[2].newest, some[2].read = some[1].before, some[1].newest, []
    some[2].saves = [save(4, "run-3/step_4.json")]
    assert rules(some) == ["timestamped-directory"]
    some[1].wrote = "run-1/x.tmp"  # the same folder: it never looked
    assert rules(some) == ["never-resumed"]


def test_a_loop_that_began_anew_and_fails_on_what_is_there_is_not_stopped_by_what_is_torn() -> None:
    some = starts()
    some[1].saves, some[1].torn = [], ["writing.tmp"]
    some[2].before, some[2].newest, some[2].read = some[1].before, some[1].newest, ["step_5.json"]
    some[2].saves, some[2].signal, some[2].code, some[2].tried = [], None, 1, [4]
    assert rules(some) == ["step-not-restored"]
    some[1].torn = []
    assert rules(some) == ["step-not-restored"]
    some[2].tried, some[1].torn = [], ["writing.tmp"]
    assert rules(some) == ["torn-newest"]


def test_a_number_in_a_name_that_never_changes_is_no_step() -> None:
    some = starts()
    same = "step_0.pt"
    some[0].saves = [save(0, same), save(0, same)]
    for start in some[1:]:
        start.before, start.newest, start.read, start.saves = (saved(0, same),), save(0, same), [same], [save(0, same)]
    assert rules(some) == []
    some[0].saves = [save(0, same)]
    assert rules(some) == ["step-not-restored"]


@pytest.mark.parametrize(("step", "expected"), [(5, []), (4, ["fixed-resume-path"])])
def test_a_copy_of_the_newest_under_another_name_is_the_newest(step: int, expected: list[str]) -> None:
    some = starts()
    last = Saved("best.ckpt", "file", None, 10, 1.0, None)
    some[1].before, some[1].read = (saved(5), last), ["best.ckpt"]
    assert rules(some, steps={(last.path, last.mtime, last.size): step}) == expected


def test_a_copy_whose_step_nobody_knows_is_as_new_as_its_time() -> None:
    some = starts()
    for mtime, expected in ((6.0, []), (1.0, ["fixed-resume-path"])):
        some[1].before, some[1].read = (saved(5), Saved("last.ckpt", "file", None, 10, mtime, None)), ["last.ckpt"]
        assert rules(some) == expected
