"""Classes of kernels and unknown names, by rows worked out by hand."""

from retime.ingest.kernels import class_of_category
from retime.queries import loader

from .conftest import write


def rows(event):
    """Rank 0: 60 of gemm, 20 unknown, 15 copies, 5 of a copy kernel; rank 1: 10 unknown."""
    return [
        event(0, 1, "kernel", 0, 40, name="nvjet_a", category="gemm"),
        event(0, 2, "kernel", 40, 60, name="convolve", category="conv"),
        event(0, 3, "kernel", 60, 70, name="mine", category="unknown"),
        event(0, 4, "kernel", 70, 80, name="mine", category="unknown"),
        event(0, 5, "memcpy", 80, 90, name="Memcpy HtoD", category=None),
        event(0, 6, "memset", 90, 95, name="Memset", category=None),
        event(0, 7, "kernel", 95, 100, name="gather", category="index"),
        event(0, 8, "host_op", 0, 1000, name="mine", category=None),
        event(1, 9, "kernel", 0, 4, name="mine", category="unknown"),
        event(1, 10, "kernel", 4, 10, name="none said", category=None),
    ]


def test_work_by_class_adds_up_to_the_ranks_device_work(open_job, one_host, event):
    con = open_job(ranks=one_host(0, 1), events=rows(event))
    assert con.execute("FROM kernel_classes ORDER BY rank, total_ns DESC, class").fetchall() == [
        ("j", 0, "gemm", 2, 60, 0.6),
        ("j", 0, "copy", 3, 20, 0.2),
        ("j", 0, "unknown", 2, 20, 0.2),
        ("j", 1, "unknown", 2, 10, 1.0),
    ]


def test_unknown_names_are_counted_over_ranks(open_job, one_host, event):
    con = open_job(ranks=one_host(0, 1), events=rows(event))
    assert con.execute("FROM unknown_kernels ORDER BY total_ns DESC").fetchall() == [
        ("j", "mine", 3, 24, 24 / 110, 2),
        ("j", "none said", 1, 6, 6 / 110, 1),
    ]


def test_kernels_without_time_have_no_share(open_job, one_host, event):
    none = [event(0, 1, "kernel", 5, 5, name="k", category="unknown")]
    con = open_job(ranks=one_host(0), events=none)
    assert con.execute("FROM kernel_classes").fetchall() == [("j", 0, "unknown", 1, 0, None)]
    assert con.execute("FROM unknown_kernels").fetchall() == [("j", "k", 1, 0, None, 1)]
    assert open_job(ranks=one_host(0)).execute("FROM kernel_classes").fetchall() == []


def test_the_macro_gives_each_categorys_class(open_job, one_host):
    con = open_job(ranks=one_host(0))
    for category, of_it in class_of_category().items():
        assert con.execute("SELECT kernel_class(?)", [category]).fetchall() == [(of_it,)]
    assert con.execute("SELECT kernel_class(NULL), kernel_class('x')").fetchall() == [
        ("unknown", "unknown")
    ]


def test_what_a_user_says_takes_the_place_of_what_was_stored(tmp_path, one_host, event):
    files = {
        job: write(tmp_path / job, {"ranks": one_host(0, 1), "events": rows(event)})
        for job in ("a", "b")
    }
    said = {"a": {"mine": "comm", "nvjet_a": "attention"}}
    con = loader.connect(files, categories=said, threads=1)
    categories = "SELECT name, kind, category FROM events WHERE job = ? ORDER BY event_id"
    stored = [(r["name"], r["kind"], r["category"]) for r in rows(event)]
    assert con.execute(categories, ["b"]).fetchall() == stored
    # A host's event of the same name is no kernel.
    assert con.execute(categories, ["a"]).fetchall() == [
        (name, kind, said["a"].get(name, category) if kind == "kernel" else category)
        for name, kind, category in stored
    ]
    assert con.execute(
        "SELECT job, class, sum(total_ns) FROM kernel_classes GROUP BY ALL ORDER BY ALL"
    ).fetchall() == [
        ("a", "attention", 40), ("a", "communication", 24), ("a", "copy", 20), ("a", "gemm", 20),
        ("a", "unknown", 6),
        ("b", "copy", 20), ("b", "gemm", 60), ("b", "unknown", 30),
    ]  # fmt: skip
