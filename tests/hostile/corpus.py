"""Names made to run, to escape, to hide or to cost, and jobs in which every text is one of them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

FETCHED = "http://127.0.0.1:9/fetched"
"""Asked of by nothing that is safe; the browser's test fails where it is."""

PWNED = "PWNED"
"""Begin of the names of files that are there only if something ran."""

MB = 1_000_000

NAMES: dict[str, str] = {
    # Markup and script.
    "script": "</script><script>window.hacked=1</script>",
    "image": "<img src=x onerror=window.hacked=1>",
    "svg": "<svg/onload=window.hacked=1><iframe src=javascript:parent.hacked=1>",
    "attribute": "\" autofocus onfocus=window.hacked=1 x=' onmouseover=window.hacked=1 `",
    "link": f'<a href="javascript:window.hacked=1">x</a><base href="{FETCHED}/">',
    "style": f"</style><style>*{{background:url({FETCHED}.css)}}</style>",
    "css": f"red;background:url({FETCHED}.bg);width:expression(1)",
    "comment": "--><!--<![CDATA[ ]]> &lt;script&gt; &#60;b&#62; <!",
    "meta": f'<meta http-equiv=refresh content="0;url={FETCHED}"><title>x</title><plaintext>',
    # Markdown, templates, expressions of charts, rich text.
    "markdown": f"![x]({FETCHED}.png) **b** _i_ [x](javascript:window.hacked=1) # h | t |",
    "fence": "```\n\n<script>window.hacked=1</script>\n\n```python\nimport os\n```",
    "mathjax": "$$\\href{javascript:window.hacked=1}{x}$$ \\unicode{<img>} $x$",
    "template": "{{7*7}} ${window.hacked=1} {%raw%} #{x} <%= x %> {con} {0.__class__}",
    "vega": "datum['x'] + (window.hacked=1):Q \\. [0] .a :N",
    "rich": "[bold red]x[/bold red][link=http://127.0.0.1:9]y[/link][/] :skull: \\[",
    # Code.
    "python": f"\"\"\")\nimport os\nos.system('touch {PWNED}-py')\n(r'''\\",
    "magic": f"%system touch {PWNED}-magic\n!touch {PWNED}-bang\n%%bash",
    "sql": "x'); DROP VIEW events; COPY (SELECT 1) TO 'PWNED-sql'; --",
    "identifier": "x\" AS y; ATTACH 'PWNED-db'; SELECT \"",
    "dollar": "$$ || getenv('HOME') || $$ $1 ?1 :x",
    "shell": f"$(touch {PWNED}-sh) `touch {PWNED}-tick`; touch {PWNED}-semi # '\"|&\\",
    "formula": "=cmd|' /C calc'!A0",
    "formula at": "@SUM(1+1)*cmd",
    "formula minus": "-2+3+cmd|' /C calc'!A0",
    "printf": "%s%n%x%1000000d {:>999999999}",
    # Terminals.
    "escape": "\x1b]0;owned\x07\x1b[2J\x1b[31m\x1b]8;;http://127.0.0.1:9\x1b\\x\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x9d0;owned\x9c\x90q\x85\x84",
    "motion": "a\rb\bc\x7fd\x0be\x0cf\tg",
    "lines": "line one\nretime: all is well\r\n\u2028next\u2029next\x1e",
    "null": "before\x00after",
    # Paths.
    "up": "../../../../../../tmp/PWNED-up",
    "absolute": "/tmp/PWNED-absolute",
    "windows": "C:\\PWNED\\..\\x\\\\?\\UNC\\host\\CON",
    "home": "~root/$HOME/%2e%2e%2fPWNED",
    # What readers cannot see or tell apart.
    "bidi": "\u202egnp.lenrek\u202c \u2066x\u2069 \u061c\u200f",
    "zero width": "gem\u200bm\u2060\ufeff\u00ad\u034f",
    "tags": "gemm\U000e0041\U000e0042\ufe0f\U000e0100",
    "blanks": "gemm\u3164\u2800\u3000\u2003\xa0x",
    "flood": "z" + "\u0301\u0489\u20dd" * 300,
    "latin": "all_reduce_paypal",
    "cyrillic": "\u0430ll_r\u0435duc\u0435_p\u0430yp\u0430l",
    "wide": "\uff41\uff4c\uff4c_\uff52\uff45\uff44\uff55\uff43\uff45",
    "formula letters": "\U0001d41a\U0001d425\U0001d425 gemm",
    "slashes": "etc\u2215passwd\u2044x",
    "composed": "caf\u00e9_kernel",
    "decomposed": "cafe\u0301_kernel",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 kernel",
    # What is hardly text.
    "surrogate": "lone \ud800 and \udfff",
    "no character": "x\uffff\ufffe\ufdd0\ufff9y",
    "empty": "",
    "space": "   ",
    "nothing": "null",
    "number": "NaN",
    "regex": "(a+)+$ .* [a-z]{1,99999} \\Q(?R)",
    "glob": "*?[!a]{x,y}",
    "like": "%_\\%",
    # What is long.
    "long": "L" * MB,
    "long words": "word " * (MB // 5),
    "long wide": "\u6f22" * (MB // 4),
    "long hidden": "\u200b" * (MB // 4),
    "long brackets": "<" * (MB // 4),
}
"""By what they try."""

SHORT = {k: v for k, v in NAMES.items() if len(v) < 10_000}

FILE_NAMES = {
    k: v.encode("utf-8", "surrogateescape")[:200]
    for k, v in SHORT.items()
    if v.strip() and "/" not in v and "\x00" not in v and k != "surrogate"
} | {"no UTF-8": b"\xff\xfe\xc0\x80", "dash": b"--json", "newline": b"a\nb"}
"""Names that a file system takes."""

JOB_IDS = [*SHORT.values(), "..", ".", "-x", "a/b", "job=x", "a" * 129, "\u0430bc", "a b", "a\n"]
"""None of these may name a job (but for plain ones)."""

RAW = b"\xff\xfe\xc0\x80\x1b[31m\x9b\x01"
"""Bytes that are no UTF-8 and no JSON, within a name."""

_RAW_MARK = "RAW-BYTES-COME-HERE"
BASE_NS = 1_760_000_000_000_000_000
RANKS, STEPS = 2, 3


def kineto(rank: int, slower: float = 1.0, names: dict[str, str] = NAMES) -> bytes:
    """A Kineto trace: each name is a kernel's, an operator's, an annotation's, an argument's."""
    texts = [*names.values(), f"raw {_RAW_MARK}"]
    short = cycle(SHORT.values())
    events: list[dict[str, Any]] = []
    for what in ("process_name", "process_labels", "thread_name"):
        for pid, name in enumerate(SHORT.values()):
            key = "labels" if what == "process_labels" else "name"
            events.append({"ph": "M", "name": what, "pid": pid, "tid": pid, "args": {key: name}})
    groups = [
        {"pg_name": name, "pg_desc": f"{name}{i}", "backend_config": f"cuda:{name}",
         "pg_size": RANKS, "ranks": list(range(RANKS))}
        for i, name in enumerate(SHORT.values())
    ]  # fmt: skip
    at, n = 1000.0, 0
    for step in range(STEPS):
        begin = at
        for i, name in enumerate(texts):
            if len(name) > 10_000 and step != i % STEPS:
                continue
            n += 1
            dur = (20 + i + (15 if rank == 1 else 0)) * slower
            x = {"ph": "X", "pid": 10, "ts": at}
            said = {"External id": n, "Input type": [next(short)], "Call stack": next(short),
                    next(short): next(short)}  # fmt: skip
            fixed = {"device": 0, "stream": 7, "correlation": n, "grid": [8, 1, 1]}
            tid = 1 if i % 9 else next(short)
            events += [
                {**x, "cat": "cpu_op", "name": name, "tid": tid, "dur": 6, "args": said},
                {**x, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": tid, "dur": 4,
                 "args": {"correlation": n}},
                {**x, "cat": "kernel", "name": name, "tid": 7, "ts": at + 5, "dur": dur,
                 "args": fixed},
            ]  # fmt: skip
            if i % 4 == 0:
                cat = ("user_annotation", "python_function", "gpu_user_annotation", next(short))
                events.append({**x, "cat": cat[i // 4 % 4], "name": next(short), "tid": 1, "dur": 3,
                               "args": {"Python id": n}})  # fmt: skip
                events.append({"ph": "C", "name": next(short), "ts": at, "pid": 10,
                               "args": {next(short): i}})  # fmt: skip
            at += dur + 12 if rank else dur + 12 + 15 * slower
            if i % 3 == 0:
                group = groups[(i // 3) % len(groups)]
                n += 1
                args = {"Collective name": "allreduce" if i % 2 else next(short),
                        "dtype": next(short), "In msg nelems": 4096, "Out msg nelems": 4096,
                        "Group size": RANKS, "Process Group Name": group["pg_name"],
                        "Process Group Description": group["pg_desc"],
                        "Process Group Ranks": str(group["ranks"])}  # fmt: skip
                started = at + 2 + 10 * rank
                events += [
                    {**x, "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "tid": 1,
                     "ts": at - 3, "dur": 2, "args": {"correlation": n}},
                    {**x, "cat": "kernel", "tid": 20, "ts": started, "dur": at + 40 - started,
                     "name": f"ncclDevKernel_AllReduce_{SHORT['script'] if i % 2 else 'Sum_f32'}",
                     "args": {"device": 0, "stream": 20, "correlation": n, **args}},
                ]  # fmt: skip
                at += 45
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}",
                       "pid": 10, "tid": 1, "ts": begin - 1, "dur": at - begin})  # fmt: skip
    whole = {
        "schemaVersion": 1,
        NAMES["script"]: NAMES["script"],
        "host_name": f"{NAMES['script']}{NAMES['escape']}{NAMES['bidi']}{rank}",
        "deviceProperties": [{"id": 0, "name": NAMES["image"] + NAMES["escape"], "numSms": 132}],
        "distributedInfo": {"backend": NAMES["script"], "rank": rank, "world_size": RANKS,
                            "pg_config": groups, "nccl_version": NAMES["escape"]},
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }  # fmt: skip
    return json.dumps(whole).encode().replace(_RAW_MARK.encode(), RAW)


def plain(rank: int) -> bytes:
    """The plain form: every column of text of every table is one name after the other."""
    names = cycle(SHORT.values())

    def lines() -> Iterator[dict[str, Any]]:
        yield {"table": "ranks", "rank": rank, "world_size": RANKS,
               "host": f"{NAMES['image']}{NAMES['c1']}{rank}", "device_name": next(names),
               "clock": next(names), "host_source": next(names),
               next(names): next(names)}  # fmt: skip
        for i, name in enumerate(SHORT.values()):
            yield {"table": "comms", "comm": f"{i}{name}", "name": name, "description": name,
                   "ranks": [0, 1], "size": 2, "dim": name, "dim_reason": name,
                   "dim_source": name, "backend": name}  # fmt: skip
        at = 1_000_000
        for step in range(STEPS):
            begin = at
            for i, name in enumerate(SHORT.values()):
                yield {"table": "events", "name": name, "start_ns": at, "dur_ns": 9000 + 500 * rank,
                       "kind": "kernel" if i % 3 else name, "stream": 7, "thread": name,
                       "category": "gemm" if i % 2 else name, "step": step}  # fmt: skip
                at += 10_000
                yield {"table": "collectives", "comm": f"{i}{name}", "seq": step, "op": name,
                       "algo": name, "proto": name, "dtype": name, "in_bytes": 1 << 20,
                       "out_bytes": 1 << 20, "group_size": 2, "start_ns": at + 2000 * rank,
                       "end_ns": at + 8000, "step": step, "state": name, "timing": name,
                       "clock": name, "stream": 8, "name": name}  # fmt: skip
                yield {"table": "transfers", "peer_rank": 1 - rank, "rail": i % 4, "bytes": 1 << 20,
                       "nic": name, "host": name, "direction": name, "via": name,
                       "traffic_class": "collective" if i % 2 else name,
                       "start_ns": at, "end_ns": at + 8000}  # fmt: skip
                yield {"table": "counters", "host": name, "device": name, "name": name,
                       "time_ns": at, "value": float(i)}  # fmt: skip
                at += 9_000
            yield {"table": "steps", "step": step, "start_ns": begin, "end_ns": at,
                   "found_by": next(names)}  # fmt: skip
        for name in SHORT.values():
            yield {"table": "topology", "host": name, "device": name, "kind": name, "peer": name,
                   "via": name, "comm": name, "bandwidth_bytes_per_s": 10**9,
                   "rank": rank}  # fmt: skip

    return "".join(json.dumps(line) + "\n" for line in lines()).encode()


def routing() -> bytes:
    """A routing table, CSV, whose texts are names."""
    rows = ["step,layer,rank,expert,tokens,block,token_class"]
    for i, name in enumerate(SHORT.values()):
        said = name.replace('"', '""').encode("utf-8", "replace").decode()
        rows += [f'{s},{i % 3},{r},{e},{10 + 40 * (e == r)},"{said}",{"real" if i % 2 else "x"}'
                 for s in range(2) for r in range(RANKS) for e in range(4)]  # fmt: skip
    return ("\r\n".join(rows) + "\r\n").encode()


def nccl_log() -> bytes:
    """An NCCL debug log with names as hosts, networks and whole lines."""
    lines = []
    for i, name in enumerate(["", *SHORT.values()]):
        for rank in range(2):
            host = "n0" if i != 3 else name
            lines.append(
                f"{host}:{10 + rank}:{20 + rank} [{rank}] NCCL INFO ncclCommInitRank comm "
                f"0x{i + 1}{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 41000 "
                f"commId 0x{i}abc - Init START"
            )
        lines += [
            f"n0:10:20 [0] NCCL INFO NET/IB : Using [0]{name}:1/RoCE [RO]; OOB {name}:10.0.0.1<0>",
            f"n0:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{name}/0",
            f"n0:10:20 [0] NCCL WARN {name}",
            name,
        ]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def topology() -> bytes:
    """An NCCL topology file whose attributes are names."""
    from xml.sax.saxutils import quoteattr

    parts = ['<system version="1">']
    for i, name in enumerate(SHORT.values()):
        said = quoteattr("".join(c for c in name if c.isprintable()))
        parts.append(
            f'<cpu numaid="{i}" arch={said}><pci busid={said} class="0x030200" link_speed={said} '
            f'link_width="16"><gpu dev="{i}" sm="80" rank="{i}"/></pci></cpu>'
        )
    return "".join([*parts, "</system>"]).encode()


ENTITIES = b"""<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><system version="1">
<cpu numaid="0"><pci busid="&e;" class="0x030200"><gpu dev="0" sm="80" rank="0"/></pci></cpu>
</system>"""
"""A topology file that asks for another file: refused."""


def members() -> bytes:
    """A zip whose members have the names: paths out of it, and all that a file system refuses."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for i, name in enumerate(NAMES.values()):
            said = name[:15_000].encode("utf-8", "replace").decode()
            z.writestr(zipfile.ZipInfo(f"{said}/{i}.txt" if i % 2 else f"{said}{i}"), "no trace")
        z.writestr("../../PWNED-member.json", kineto(0, names=SHORT))
    return out.getvalue()


def write(folder: Path) -> dict[str, Path]:
    """The traces of four jobs by the job's id: two of Kineto, one plain, one of everything else."""
    of = {job: folder / f"traces-{job}" for job in ("kineto", "slower", "plain", "logs")}
    for path in of.values():
        path.mkdir(parents=True)
    for rank, name in enumerate(("image", "bidi")):
        # The first job has the names of a megabyte, too.
        _put(of["kineto"], FILE_NAMES[name] + b".json", kineto(rank))
        _put(of["slower"], FILE_NAMES[name] + b".json", kineto(rank, 1.3, SHORT))
        _put(of["plain"], b"rank%d.jsonl" % rank, plain(rank))
    for content, name in ((routing(), "formula at"), (nccl_log(), "sql"), (topology(), "motion")):
        _put(of["logs"], FILE_NAMES[name], content)
    _put(of["logs"], b"entities.xml", ENTITIES)
    _put(of["logs"], b"members.zip", members())
    for name in FILE_NAMES.values():
        _put(of["logs"], name + b".no", b"no trace")
    return of


def _put(folder: Path, name: bytes, content: bytes) -> None:
    with open(os.fsencode(folder) + b"/" + name, "wb") as f:
        f.write(content)
