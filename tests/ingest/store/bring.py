"""Made-up traces brought into a warehouse by forked processes, for tests of many at once.

As a script: reads JSON lines, `{"start": [environment, warehouse, job, paths, file]}` answers the
process's number, `{"wait": pid}` answers its exit code. A process ingests its traces, tries again
while the store is busy, and writes into `file` what came of it: the exit code and each source's
status, or the error's class.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRIES = 5


class Bringers:
    """One warm process that forks on demand."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _ask(self, question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, warehouse, job, paths):
        """A process that brings these traces, with this process's environment as it is now."""
        environment = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
        handle, said = tempfile.mkstemp(dir=self._folder.name)
        os.close(handle)
        asked = [environment, warehouse, job, [str(p) for p in paths], said]
        return self._ask({"start": asked}), said

    def told(self, started):
        """What a process said at its end."""
        pid, said = started
        code = self._ask({"wait": pid})
        text = Path(said).read_text()
        return json.loads(text) if text else {"died": code}

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


def _bring(warehouse, job, paths):
    from retime.ingest.errors import RetimeError, StoreBusy
    from retime.ingest.run import ingest

    said = {}
    for _ in range(TRIES):
        try:
            report = ingest(warehouse, paths, job=job, derive_now=False)
            return {"code": report.exit_code, "status": [s.status for s in report.sources]}
        except StoreBusy:
            said = {"error": "StoreBusy"}
        except RetimeError as e:
            return {"error": type(e).__name__}
    return said


def _serve():
    sys.path.insert(0, str(HERE.parent))
    import fake_trace  # noqa: F401
    import s3fs  # noqa: F401
    import standins
    from retime.ingest import derive, object_commits, run  # noqa: F401
    from retime.ingest.store import drivers, patience, s3  # noqa: F401

    standins.use_fake_format()
    patience.FIRST_DELAY_S, patience.MOST_DELAY_S = 0.002, 0.05
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            print(os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            try:
                environment, warehouse, job, paths, file = question["start"]
                os.environ.update(environment)
                Path(file).write_text(json.dumps(_bring(warehouse, job, paths)))
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _serve()
