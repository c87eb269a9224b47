"""The shipped files: the epilog runs under bash, the sidecar's command line runs, YAML is YAML."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from retime.ingest.upload.examples import FILES, example
from retime.ingest.upload.run import left

SCRIPT = "slurm-epilog.sh"


@pytest.fixture
def conf(tmp_path, wh):
    text = example("slurm-conf")
    for name, value in {
        "RETIME_WAREHOUSE": wh, "RETIME_TRACES": tmp_path / "traces-%j-%u",
        "RETIME_SPOOL_PATTERN": tmp_path / "spool-%u-%n", "RETIME_EPILOG_S": 40,
        "RETIME_COMMAND": "$RETIME_COMMAND",
    }.items():  # fmt: skip
        [line] = [t for t in text.splitlines() if t.startswith(f"{name}=")]
        text = text.replace(line, f"{name}={value}")
    (tmp_path / "upload.conf").write_text(text)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say(tmp_path):
    (tmp_path / SCRIPT).write_text(example("slurm"))
    ran = subprocess.run(["shellcheck", tmp_path / SCRIPT], capture_output=True, text=True)
    assert ran.stdout == ""


def test_the_epilog_uploads_the_job_s_traces(trace, user, wh, tmp_path, conf, epilog, rows_of):
    for rank in range(2):
        path = trace(rank, folder=f"traces-4711-{user}", world=2)
        os.utime(path, (1e9, 1e9))
    ran = epilog()
    assert (ran.returncode, ran.stdout) == (0, "")
    assert rows_of(wh, "slurm-4711") == (18, [0, 1])
    assert left(tmp_path / f"spool-{user}-node7").sent == []


def test_what_one_epilog_leaves_the_next_job_s_delivers(
    trace, user, wh, tmp_path, conf, epilog, rows_of
):
    path = trace(0, folder=f"traces-4711-{user}", world=1)
    os.utime(path, (1e9, 1e9))
    wh.rmdir()
    ran = epilog(SLURM_RESTART_COUNT="1")
    assert ran.returncode == 0
    assert "left for later" in _logged(tmp_path)
    spool = tmp_path / f"spool-{user}-node7"
    assert [(s.job, s.stored) for s in left(spool).sent] == [("slurm-4711.restart-1", True)]
    shutil.rmtree(path.parent)  # the job's folder goes away
    wh.mkdir()
    assert epilog(SLURM_JOB_ID="4712").returncode == 0
    assert rows_of(wh, "slurm-4711.restart-1") == (9, [0])
    assert left(spool).sent == []


def test_a_job_without_traces_costs_nothing(wh, conf, epilog, tmp_path):
    ran = epilog(RETIME_COMMAND="/not/there")
    assert (ran.returncode, ran.stdout, _logged(tmp_path)) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run as another user")
def test_as_root_it_reads_traces_as_the_job_s_user(conf, epilog, tmp_path):
    import pwd
    import tempfile

    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        told, seen = place / "retime", place / "seen"
        told.write_text(f'#!/bin/sh\n(id -u; echo "$HOME"; echo "$@") > {seen}/said\n')
        told.chmod(0o755)
        for made in (seen, place / "4711"):
            made.mkdir()
            os.chown(made, nobody.pw_uid, -1)
        conf = tmp_path / "upload.conf"
        conf.write_text(
            f"RETIME_WAREHOUSE=s3://b/w\nRETIME_TRACES={place}/%j\nRETIME_COMMAND={told}\n"
        )
        assert epilog(SLURM_JOB_USER="nobody").returncode == 0
        uid, home, words = (seen / "said").read_text().splitlines()
    assert (int(uid), home) == (nobody.pw_uid, nobody.pw_dir)
    assert words.startswith(f"upload {place}/4711 --wait-idle 2s --keep --spool ")
    assert words.endswith("-nobody --retry --for 30s --epilogue")


def test_without_a_search_path_or_a_system_log_it_speaks_to_stderr(tmp_path):
    (tmp_path / SCRIPT).write_text(example("slurm"))
    bash = shutil.which("bash")
    assert bash is not None
    for path in ({}, {"PATH": str(tmp_path)}):
        ran = subprocess.run(
            [bash, str(tmp_path / SCRIPT)], env=path, capture_output=True, text=True
        )
        assert ran.returncode == 0
        assert path == {} or "retime-upload: not uploaded: SLURM_JOB_ID" in ran.stderr


@pytest.mark.parametrize("how", ["no settings", "no command", "it hangs", "it fails"])
def test_the_epilog_ends_with_0_and_says_what_went_wrong(trace, user, tmp_path, conf, epilog, how):
    trace(0, folder=f"traces-4711-{user}")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nsleep 600\n" if how == "it hangs" else "#!/bin/sh\nexit 7\n")
    broken.chmod(0o755)
    settings = {
        "no settings": {"RETIME_UPLOAD_CONF": "/none"}, "no command": {"RETIME_COMMAND": "/none"},
        "it hangs": {"RETIME_COMMAND": str(broken)}, "it fails": {"RETIME_COMMAND": str(broken)},
    }[how]  # fmt: skip
    if how == "it hangs":
        path = tmp_path / "upload.conf"
        path.write_text(path.read_text().replace("RETIME_EPILOG_S=40", "RETIME_EPILOG_S=1"))
    ran = epilog(**settings)
    assert ran.returncode == 0
    ended = {"no settings": "not uploaded", "no command": "ended with 127",
             "it hangs": "ended with 124", "it fails": "ended with 7"}  # fmt: skip
    assert ended[how] in _logged(tmp_path)


def _logged(home: Path) -> str:
    log = home / "syslog"
    return log.read_text() if log.exists() else ""


@pytest.fixture
def manifest() -> dict:
    [found] = yaml.safe_load_all(example("kubernetes"))
    return found


def test_the_sidecar_is_a_native_one_beside_the_training(manifest):
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    pod = manifest["spec"]["template"]["spec"]
    [upload] = pod["initContainers"]
    [train] = pod["containers"]
    assert upload["restartPolicy"] == "Always"
    assert pod["restartPolicy"] == "Never"
    volumes = {v["name"] for v in pod["volumes"]}
    mounts = {c["name"]: {m["name"]: m for m in c["volumeMounts"]} for c in (upload, train)}
    assert set(mounts["upload"]) == volumes
    assert mounts["upload"]["traces"]["mountPath"] == mounts["train"]["traces"]["mountPath"]
    assert mounts["upload"]["traces"]["readOnly"]
    assert "readOnly" not in mounts["train"]["traces"]
    env = {e["name"]: e for e in upload["env"]}
    assert env["RETIME_JOB"]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.labels['batch.kubernetes.io/job-name']"
    )
    assert {"requests", "limits"} <= set(upload["resources"])
    command = upload["command"]
    tries_s = int(command[command.index("--for") + 1].removesuffix("s"))
    assert tries_s < pod["terminationGracePeriodSeconds"]
    spool = command[command.index("--spool") + 1]
    assert any(spool.startswith(m["mountPath"] + "/") for m in mounts["upload"].values())


def test_the_sidecar_s_command_runs_and_ends_at_sigterm(
    manifest, trace, wh, tmp_path, command, rows_of
):
    [upload] = manifest["spec"]["template"]["spec"]["initContainers"]
    words = [str(command), *upload["command"][1:]]
    trace(0, world=1)
    places = {"/traces": tmp_path / "traces", "/spool/retime": tmp_path / "spool"}
    words = [str(places.get(w, w)) for w in words]
    assert sum(w.startswith(str(tmp_path)) for w in words) == 3
    env = os.environ | {"RETIME_WAREHOUSE": str(wh), "RETIME_JOB": "train"}
    sidecar = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    try:
        _ready(tmp_path / "spool", sidecar)
        assert sidecar.poll() is None
        sidecar.terminate()
        assert sidecar.wait(timeout=60) == 0
    finally:
        sidecar.kill()
        sidecar.stderr.close()
    assert rows_of(wh, "train") == (9, [0])


def _ready(spool: Path, process: subprocess.Popen) -> None:
    """Waits until a follower has looked for the first time: it listens to signals by then."""
    for _ in range(600):
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(t for t in status.splitlines() if t.startswith("SigCgt")).split()[1]
        if int(caught, 16) >> 14 & 1:  # SIGTERM, the 15th
            return
        time.sleep(0.1)
    raise AssertionError("it never came up")


def test_cron_s_line_is_one_that_runs(trace, wh, tmp_path, command):
    [line] = [t for t in example("cron").splitlines() if t and not t.startswith("#")]
    assert "%" not in line  # cron makes lines of them
    when, user, words = line.split()[:5], line.split()[5], line.split()[6:]
    assert (when[0], len(when), user) == ("*/10", 5, "trainer")
    said = " ".join(words).replace("/opt/retime/bin/retime", str(command))
    said = said.replace("/var/tmp/", f"{tmp_path}/")
    ran = subprocess.run(["sh", "-c", said], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_every_example_is_printed_as_it_is(cli):
    folder = Path(__file__).resolve().parents[3] / "ingest" / "upload" / "examples"
    assert {p.name for p in folder.iterdir() if p.is_file()} == set(FILES.values())
    for name, file in FILES.items():
        text = (folder / file).read_text()
        assert cli("upload", "--example", name) == (0, text, "")
        out = cli("upload", "--example", name, "--json")[1]
        assert json.loads(out) == {"name": name, "text": text}
