"""What programs print of time, read back; the right instants are read off the lines by eye."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from traceparse.metrics.stamps import epochs, lock_waits, stamps, stated_seconds

DAY = datetime(2026, 7, 1, 17, 26, 15)


@pytest.mark.parametrize(
    ("text", "kind", "at", "zoned"),
    [
        (
            "benchmark_event event=variant_start shape=0 variant=solution ts=2026-07-01T17:30:00.123456+00:00",
            "benchmark_event",
            datetime(2026, 7, 1, 17, 30, 0, 123456),
            True,
        ),
        (
            "Wed Jul  1 17:26:48 2026       \n+-----------+\n| NVIDIA-SMI",
            "nvidia-smi",
            datetime(2026, 7, 1, 17, 26, 48),
            False,
        ),
        ("Wed Jul  1 06:09:32 PM MDT 2026", "date", datetime(2026, 7, 2, 0, 9, 32), True),
        ("Wed Jul  1 12:00:05 AM 2026", "date", datetime(2026, 7, 1, 0, 0, 5), False),
        ("Thu Jun 18 19:37:41 UTC 2026", "date", datetime(2026, 6, 18, 19, 37, 41), True),
        ("HTTP/2 200\ndate: Sat, 13 Jun 2026 10:24:40 GMT", "date", datetime(2026, 6, 13, 10, 24, 40), True),
        ("-rw-rw-r-- 1 user user 5442 Jun 18 13:42 benchmark.py", "listing", datetime(2026, 6, 18, 13, 42), False),
        (
            ".rw-rw-r-- user user 57 KB Wed Jul  1 19:58:05 2026 solution.py",
            "listing",
            datetime(2026, 7, 1, 19, 58, 5),
            False,
        ),
        ("Modify: 2026-06-01 11:27:16.593957316 -0600", "log stamp", datetime(2026, 6, 1, 17, 27, 16, 593957), True),
        ("-rw-r--r-- 1 u u 12 2026-06-10 16:13 /a/b.ptx", "listing", datetime(2026, 6, 10, 16, 13), False),
        (
            "1781154952.4934760980 /home/agent/.triton/cache/k.cubin",
            "listing",
            datetime(2026, 6, 11, 5, 15, 52, 493476),
            True,
        ),
        (
            "W0428 11:09:30.936000 395740 .venv/lib/torch/x.py:1] Graph break",
            "torch",
            datetime(2026, 4, 28, 11, 9, 30, 936000),
            False,
        ),
        ("2026-06-10T10:34:09-06:00 wait pid=6424 cmd=uv", "gpu_lock", datetime(2026, 6, 10, 16, 34, 9), True),
        (
            " 19:09:43 up 22:47,  0 users,  load average: 34.34, 39.27, 29.81",
            "uptime",
            datetime(2026, 7, 1, 19, 9, 43),
            False,
        ),
        (
            "user+  289314  0.0  0.0  19720  4600 ?        Ss   08:54   0:00 /bin/zsh -c x",
            "ps",
            datetime(2026, 7, 1, 8, 54),
            False,
        ),
        ("ended_at: 2026-06-18T23:29:54.511Z", "terminal", datetime(2026, 6, 18, 23, 29, 54, 511000), True),
    ],
)
def test_one_stamp(text: str, kind: str, at: datetime, zoned: bool) -> None:
    (stamp,) = stamps(text, DAY)
    assert (stamp.kind, stamp.at, stamp.zoned) == (kind, at, zoned)


@pytest.mark.parametrize(
    "text",
    [
        "Built on Thu_Mar_19_11:12:51_PM_PDT_2026",
        "shape=0 variant=solution tflops=1.2 ms=0.054\n+-----+\n| 10:30 |",
        "2026-02-31T10:00:00Z",
        "Wed Jul 32 17:26:48 2026",
        "see the notes of 2026-06-10 16:13 for more",
        "tensor.py:1379] ratio 3:45",
        "",
    ],
)
def test_look_alikes_are_no_stamps(text: str) -> None:
    assert stamps(text, DAY) == []


def test_an_unknown_zone_name_leaves_the_wall_clock() -> None:
    (stamp,) = stamps("Wed Jul  1 17:26:48 XYZT 2026", DAY)
    assert (stamp.at, stamp.zoned) == (datetime(2026, 7, 1, 17, 26, 48), False)


def test_a_listing_keeps_path_and_size_of_a_long_line() -> None:
    path = "/run/" + "x" * 300 + "/tasks/bs6.output"
    (stamp,) = stamps(f".rw-rw-r-- user user 0 B Wed Jul  1 18:38:20 2026 {path}", DAY)
    assert (stamp.path, stamp.size, len(stamp.text)) == (path, "0", 200)


def test_a_running_terminal_tells_the_present() -> None:
    head = "---\npid: 1\nstarted_at: 2026-06-18T20:12:42.068Z\nrunning_for_ms: 240006   \n---\n"
    begun, now = sorted(stamps(head, DAY), key=lambda stamp: stamp.at)
    # 20:12:42.068 + 240.006 s
    assert begun.at == datetime(2026, 6, 18, 20, 12, 42, 68000)
    assert now.at == datetime(2026, 6, 18, 20, 16, 42, 74000)


def test_todo_entries_carry_epochs() -> None:
    (made,) = epochs('{"todos": [{"id": "1", "createdAt": "1781817421391"}]}')
    assert made.at == datetime(2026, 6, 18, 21, 17, 1, 391000)
    assert epochs('{"createdAt": "17818174213911"}') == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Chunk ID: 9c9dee\nWall time: 5.0012 seconds\nProcess running with session ID 43031", 5.0012),
        ("stderr: ''\n  executionTime: 14932\n  aborted: False", 14.932),
        ("ok\n\nreal\t0m1.890s\nuser\t0m2.940s", 1.89),
        ("real\t1m2.000s\n…\nreal\t0m3.5s", 65.5),
        ("elapsed_s=3.2 realistic", None),
    ],
)
def test_stated_run_times(text: str, seconds: float | None) -> None:
    assert stated_seconds(text) == seconds


def test_lock_waits_pair_by_process() -> None:
    log = (
        "2026-06-18T04:18:51+00:00 wait pid=222 cmd=uv args=run\\ python\\ -\n"
        "2026-06-18T04:18:51+00:00 wait pid=232 cmd=uv args=run\\ python\\ -\n"
        "2026-06-18T04:18:59+00:00 start pid=222 cmd=uv\n"
        "2026-06-18T04:19:04+00:00 end pid=222 cmd=uv status=0 elapsed_s=5\n"
        "2026-06-18T04:19:04+00:00 start pid=232 cmd=uv\n"
        "2026-06-18T04:29:25+00:00 wait pid=648 cmd=uv args=run\\ python\\ check.py\n"
    )
    assert [wait.end.at - wait.begin.at for wait in lock_waits(log)] == [timedelta(seconds=8), timedelta(seconds=13)]
