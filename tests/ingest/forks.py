"""Ingests in forked processes, started without the cost of imports, so that they can be killed.

As a script: reads JSON lines, `{"start": [warehouse, paths, job]}` answers the process's number,
`{"wait": pid}` answers its exit code (negative: the signal). Its argument is the number of workers
for each ingest of real formats; without one the traces are made up.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Forks:
    """The other end: one warm process that forks an ingest on demand."""

    def __init__(self, *arguments):
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, warehouse, paths, job):
        return self._ask({"start": [str(warehouse), [str(p) for p in paths], job]})

    def wait(self, pid):
        return self._ask({"wait": pid})

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _warm_up(made_up):
    """One ingest here, so that what is forked need not import and load the same again."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "rank0.json"
        if made_up:
            standins.write_trace(trace, 0)
        else:
            event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
            trace.write_text(json.dumps({"traceEvents": [event]}))
        run.ingest(Path(folder) / "w", [trace], job="j", rank=0, workers=1)


def _serve(workers=None):
    sys.path.insert(0, str(HERE))
    global run, standins
    import standins
    from retime.ingest import run

    if workers is None:
        import fake_trace  # noqa: F401

        standins.use_fake_format()
    else:
        run.SMALL_BYTES = 0  # small files go to workers too
    _warm_up(made_up=workers is None)
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            print(os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            code = 1
            try:
                warehouse, paths, job = question["start"]
                code = run.ingest(warehouse, paths, job=job, workers=int(workers or 1)).exit_code
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
