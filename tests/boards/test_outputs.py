"""Outputs that cannot be written: commands refuse them before minutes of work."""

import pytest

from trainwright.cli import main
from trainwright.cli.train import job as training
from trainwright_boards import flow, flows
from trainwright_hw.build import package

WORK = (
    (flow, "write_design"),
    (flows, "package_verilog"),
    (package, "package_verilog"),
    (training, "asked"),
)
"""Functions with which the work of each command begins."""


@pytest.mark.parametrize(
    "command",
    [
        "build ulx3s-12f --out {file}/x",
        "build ulx3s-12f --out {file}",
        "build ulx3s-12f --seeds 2 --out {file}/x",
        "build ulx3s-12f --append {file}/x --out {folder}/out",
        "export --for vivado --out {file}/x",
        "export kv260 --out {file}/x",
        "export kv260 --estimate --append {folder} --out {folder}/out",
        "export arty-a7-35t --out {file}/x",
        "export-job digits --out {file}/x",
        "verilog --out {long}/x.v",
        "profile digits --backend golden --out {file}/x",
        "reproduce qr --out {file}/x",
        "eval {folder}/model --out {file}/x",
    ],
)
def test_command_with_unwritable_output_ends_before_its_work(
    tmp_path, capsys, monkeypatch, command
):
    def work(*_, **__):
        raise AssertionError("the work has begun")

    for module, name in WORK:
        monkeypatch.setattr(module, name, work)
    monkeypatch.setattr("trainwright.cli.profile._profiled", work)
    file = tmp_path / "file"
    file.write_text("kept")
    filled = command.format(file=file, folder=tmp_path, long="no" * 200)
    assert main(filled.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trainwright: error:") and "Traceback" not in error
    assert "write" in error
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("build kv260", "trainwright export kv260"),
        ("load pynq-z2", "trainwright export pynq-z2"),
        ("build ulx3s-12f --seeds 2 --append x", "omit --append or --seeds"),
        ("export --for vivado --append x", "--append takes figures, which --estimate makes"),
        ("trace digits --descriptor 8 --out no/x.fst", "there is no folder 'no'"),
    ],
)
def test_command_with_option_of_another_names_remedy(capsys, command, remedy):
    assert main(command.split()) == 2
    assert remedy in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["train --steps 1 --out {long}", "eval {long}", "profile digits --backend golden --out {long}",
     "trace digits --descriptor 1 --out {long}/x.fst", "fit kv260 --by-count --network {long}"],
)  # fmt: skip
def test_command_with_name_that_is_too_long_is_one_error(capsys, command):
    assert main(command.format(long="n" * 300).split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trainwright: error:") and len(error) < 1100
