"""Commands that texts suggest can be typed as they stand, about the same warehouse."""

import shlex

import pytest
import retime
from retime import cli
from retime.ingest import suggested
from retime.ingest.errors import WarehouseError


def test_a_command_is_quoted_and_names_the_warehouse_of_the_option():
    assert suggested.command("sql", "FROM hangs") == "retime sql 'FROM hangs'"
    suggested.named("s3://b/my traces")
    said = suggested.command("report", "run-7")
    assert said == "retime report run-7 --warehouse 's3://b/my traces'"
    suggested.named(None)
    assert shlex.split(said)[-1] == "s3://b/my traces"
    assert suggested.command("jobs") == "retime jobs"


def test_only_an_option_is_repeated(tmp_path, monkeypatch, capsys):
    place = str(tmp_path)
    assert cli.run(["show", "--warehouse", place]) == 3
    assert f"(retime ingest PATH --warehouse {place})" in capsys.readouterr().err
    monkeypatch.setenv("RETIME_WAREHOUSE", place)
    assert cli.run(["show"]) == 3
    assert "(retime ingest PATH)" in capsys.readouterr().err
    with pytest.raises(WarehouseError, match=r"\(retime ingest PATH\)"):
        retime.open(place).job()
