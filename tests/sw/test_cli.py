"""The command line: one-line errors, extras that break alone, and a whole run of ``train``."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from float_driver import FloatDriver

import trainwright.cli.command
from trainwright.accelerator import AcceleratorError, backend_names
from trainwright.cli import main
from trainwright.cli.command import ALL, LazyCommand, registered
from trainwright.cli.core import OWN, _parser
from trainwright.cli.train import machine
from trainwright.cli.train.folder import RunFolder
from trainwright.network import load_network
from trainwright.support.files import write_whole
from trainwright.train.checkpoint import load_checkpoint
from trainwright.train.export import load_model
from trainwright.train.host_engine import HostEngine
from trainwright.train.interfaces import Verification

SHORT = ["train", "--steps", "50", "--prior-weight", "20", "--rank-threshold", "0.3"]


class Fake:
    """Stands for the accelerator; ``at`` maps the number of a backward pass to what happens."""

    def __init__(self):
        self.at = {}
        self.backwards = 0
        self.verification = Verification(1, 3, 100, 0)

    @contextmanager
    def open_machine(self, job):
        fake, options, settings = self, job.options, job.state.settings

        class Driver(FloatDriver):
            def run_backward(self, given):
                fake.backwards += 1
                fake.at.get(fake.backwards, lambda: None)()
                return super().run_backward(given)

            def calibrate(self, *args):
                before = fake.backwards
                fake.backwards = -1000
                super().calibrate(*args)
                fake.backwards = before

        verifier = (lambda case: self.verification) if options.verify else None

        def open_driver(network):
            return Driver(None, network, settings.micro_batch)

        yield machine.Machine(HostEngine(open_driver, verifier, options.verify), open_driver)


@pytest.fixture
def fake(monkeypatch):
    fake = Fake()
    monkeypatch.setattr(machine, "open_machine", fake.open_machine)
    return fake


def run(capsys, *argv):
    """Run a command line and return (status, stdout, stderr)."""
    try:
        status = main([str(word) for word in argv])
    except SystemExit as error:
        status = error.code
    out, err = capsys.readouterr()
    return status, out, err


def complaint(capsys, *argv):
    """Return the message of a command line that fails with one line and status 2."""
    status, out, err = run(capsys, *argv)
    assert status == 2 and out == "" and err.startswith("trainwright: error: "), (status, out, err)
    assert err.count("\n") == 1 and err.endswith("\n")
    return err.removeprefix("trainwright: error: ").strip()


def test_cli_help_explains_commands_and_statuses(capsys):
    status, out, _ = run(capsys)
    assert status == 0
    for word in ("train", "check", "listing", "examples:", "golden", "rtl", "Exit status"):
        assert word in out
    status, out, _ = run(capsys, "train", "--help")
    assert status == 0 and "--resume" in out and "report.html" in out


def test_cli_rejects_unknown_words(capsys):
    assert "invalid choice: 'fly'" in complaint(capsys, "fly")
    assert "--wings 2 (see trainwright train --help)" in complaint(capsys, "train", "--wings", "2")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["check", "--", "--batch", "4"], "--batch 4; put --batch before"),
        (["train", "--", "--batch=4"], "--batch=4; put --batch=4 before"),
        (["posit", "3", "--", "--format", "16,2"], "--format 16,2; put --format before"),
        (["bench", "qr", "--", "--rows", "4"], "--rows 4; put --rows before"),
    ],
)
def test_cli_option_after_double_dash_is_answered_with_its_place(capsys, argv, words):
    message = complaint(capsys, *argv)
    assert message.startswith(f"unrecognized arguments: {words} '--', which ends the options (see")


def test_cli_double_dash_before_the_command_names_the_option_after_it(capsys):
    message = complaint(capsys, "--", "check", "--batch", "4")
    assert "; put --batch before '--', which ends the options (see" in message


def test_cli_double_dash_without_options_after_it_only_ends_them(capsys):
    assert run(capsys, "posit", "--", "-1/2")[0] == 0
    assert run(capsys, "posit", "3", "--")[0] == 0
    assert complaint(capsys, "check", "--", "x") == complaint(capsys, "check", "x")
    assert "there is no checkpoint --batch" in complaint(capsys, "eval", "--", "--batch")


LISTED = """
import contextlib, io, sys
from trainwright.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    main([sys.argv[1]])
assert "trainwright" in out.getvalue()
print(*[name for name in ("torch", "numpy", "amaranth", "mpmath") if name in sys.modules])
"""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_command_line_version_and_help_import_nothing_slow(option):
    done = subprocess.run(
        [sys.executable, "-c", LISTED, option], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


HELPED = """
import contextlib, io, sys
from trainwright.cli.core import main, _commands
names = [[command.name] for command in _commands(None)]
names += [["reproduce", "table1"], ["reproduce", "qr"], ["bench", "cycles"], ["bench", "board"]]
slow = ("torch", "scipy", "sklearn", "matplotlib", "pandas", "PIL", "rich", "mpmath")
for name in names:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main([*name, "--help"])
    assert out.getvalue().startswith(f"usage: trainwright {' '.join(name)} "), name
    lines = out.getvalue().splitlines()
    wide = [line for line in lines if len(line) > 80 and len(line.split()) > 2]
    assert not wide, f"{name} --help is wider than the terminal: {wide}"
    imported = [module for module in slow if module in sys.modules]
    assert not imported, f"{name} --help imports {imported}"
"""


def test_command_line_help_of_each_command_imports_nothing_slow():
    done = subprocess.run(
        [sys.executable, "-c", HELPED],
        capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]


def test_lazy_command_whose_module_lacks_a_package_is_refused_by_name(capsys, monkeypatch):
    lazy = LazyCommand("extra", "needs too much", "no_such_package.command")
    monkeypatch.setattr(trainwright.cli.command, "an_extra", lazy, raising=False)
    register(monkeypatch, extra="trainwright.cli.command:an_extra")
    assert "needs too much" in run(capsys, "--help")[1]
    message = complaint(capsys, "extra")
    assert message == "command 'extra' is not available: it needs the module 'no_such_package'"


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["trian"], "train"),
        (["train", "--epoch", "3"], "--epochs"),
        (["train", "--update", "chp"], "chip"),
        (["train", "--backend", "goldn"], "golden"),
        (["train", "--network", "digts"], "digits"),
        (["train", "--dataset", "minst"], "mnist"),
        (["train", "--preset", "zu3egg"], "zu3eg"),
        (["train", "--accelerator", "lames=8"], "lanes"),
        (["train", "--formats", "gradeint=fixed(8)"], "gradient"),
        (["train", "--log", "cvs"], "csv"),
    ],
)
def test_command_line_misspelt_word_is_answered_with_the_closest(capsys, tmp_path, argv, meant):
    out = ["--out", tmp_path / "run"] if argv[0] == "train" else []
    assert f"did you mean {meant!r}?" in complaint(capsys, *argv, *out)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--epochs", "0"], "argument --epochs: must be at least 1, not 0"),
        (["--epochs", "ten"], "argument --epochs: must be an integer, not 'ten'"),
        (["--threads", "100000"], "argument --threads: must be from 1 to 1024, not 100000"),
        (["--lr", "nan"], "argument --lr: must be a number, not 'nan'"),
        (["--lr", "2"], "argument --lr: must be between 0 and 1, not 2.0"),
        (["--rank-threshold", "1"], "argument --rank-threshold: must be between 0 and 1, not 1.0"),
        (["--no-prior", "--rank-interval", "3"], "--rank-interval does not go with --no-prior"),
        (
            ["--no-prior", "--update", "chip", "--cut-programs", "fitted"],
            "--cut-programs does not go with --no-prior: omit one of them",
        ),
        (
            ["--update", "chip", "--scales", "all-frozen"],
            "scales 'all-frozen' is for an update on the host: use --scales frozen",
        ),
        (["--network", "nope"], "unknown network 'nope'; built in are digits, fashion"),
        (["--network", "nope.toml"], "cannot read network file 'nope.toml'"),
        (["--dataset", "cifar"], "unknown data set 'cifar'"),
        (
            ["--engine", "cxxrtl"],
            "--engine only applies to the simulated hardware: add --backend rtl",
        ),
        (["--backend", "rtl", "--engine", "leave"], "did you mean 'leaves'?"),
        (["--memory-stall", "0.1"], "--memory-stall only applies to the simulated hardware"),
        (["--verify", "5"], "--verify compares with the golden model: add --backend rtl"),
        (["--batch", "1438"], "batch 1438 is more than the 1,437 training samples"),
        (["--resume"], "--resume needs the folder of the run: --out DIR"),
        (["--resume", "--force"], "give one of them"),
    ],
)
def test_options_that_cannot_be(capsys, fake, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    assert message in complaint(capsys, "train", *argv)
    assert list(tmp_path.iterdir()) == []


def test_cli_rejects_unknown_backend_and_accelerator(capsys, tmp_path):
    out = ["--out", tmp_path / "r"]
    assert "--backend must be one of" in complaint(capsys, "train", "--backend", "abacus", *out)
    if "golden" not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    for item, message in (
        ("preset=zx81", "--preset: no preset 'zx81'; there are zu3eg, lfe5u-85f, ecp5-85f"),
        ("lanes=5", "--accelerator: lanes must be 4, 8 or 16, not 5"),
        ("lanes", "--accelerator: lanes must be an integer, as in lanes=8, not ''"),
        (
            "lames=8",
            "--accelerator: no parameter 'lames' (from 'lames=8'); there are lanes, pe1_rows",
        ),
    ):
        assert message in complaint(capsys, "train", "--accelerator", item, *out)
    assert not (tmp_path / "r").exists()


def test_cli_missing_data_folder_names_the_option(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("TRAINWRIGHT_DATA", raising=False)
    out = ["--out", tmp_path / "r"]
    assert "give --data DIR" in complaint(capsys, "train", "--network", "fashion", *out)
    message = complaint(capsys, "train", "--network", "fashion", "--data", tmp_path / "d", *out)
    assert "--data DIR: no such folder" in message and "train-images-idx3-ubyte" in message


@pytest.mark.parametrize("name", ("t.csv.gz", "t.xlsx", "t.npy"))
def test_cli_data_of_no_kind_that_is_read_names_file_and_kinds(capsys, tmp_path, name):
    (tmp_path / name).write_bytes(b"1,2")
    message = complaint(capsys, "train", "--data", tmp_path / name, "--out", tmp_path / "r")
    assert f"{name} has no known suffix" in message and ".npz, .csv" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a full disk")
@pytest.mark.parametrize("words", (["posit", "1", "--format", "8,0"], ["listing", "digits"]))
def test_cli_output_on_a_full_disk_is_one_error(words):
    """Write less than a buffer, which fails at the end, and more, which fails at once."""
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "trainwright.cli", *words], stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("trainwright: error: cannot write: No space left")
    assert "Traceback" not in run.stderr


def register(monkeypatch, **values):
    entries = [EntryPoint(name, value, "trainwright.commands") for name, value in values.items()]
    monkeypatch.setattr(trainwright.cli.command, "entry_points", lambda group: entries)


class Extra:
    name = "extra"
    help = "does something else"

    def add_arguments(self, parser):
        parser.add_argument("--times", type=int, default=1)

    def run(self, args):
        print("extra " * args.times)
        return 7


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_cli_with_a_closed_stream_ends_as_with_an_open_one(closed):
    """Close a descriptor as ``>&-`` does: Python then has None for the stream.

    The command has no step that reports progress on stderr when it is slow.
    """
    descriptor = {"stdout": 1, "stderr": 2}[closed]
    run = subprocess.run(
        ["sh", "-c", f'exec "$0" -m trainwright.cli boards {descriptor}>&-', sys.executable],
        capture_output=True,
        text=True,
    )
    other = run.stderr if closed == "stdout" else run.stdout
    assert run.returncode == 0 and (not other) == (closed == "stdout")


@pytest.mark.parametrize(
    "argv", [["train", "--out", ""], ["train", "--data", ""], ["eval", ""], ["plan", ""]]
)
def test_cli_empty_value_is_refused_and_does_not_mean_the_default(
    argv, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(argv)
    assert "must not be empty" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "--formats=--"], ["plan", "--batch=--"], ["train", "--network=--"],
        ["posit", "1", "--format=--"], ["listing", "--plan=--"], ["reproduce", "qr", "--out=--"],
    ],
)  # fmt: skip
def test_cli_dashes_as_a_value_are_refused_before_argparse_drops_them(
    argv, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and said.count("\n") == 1
    assert f"argument {argv[-1][:-3]}: must have a value, not '--'" in said
    assert not list(tmp_path.iterdir())


def test_cli_output_beyond_the_limit_of_a_file_is_one_error(tmp_path):
    command = f'ulimit -f 1; exec "$0" -m trainwright.cli boards > {tmp_path}/out'
    run = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True)
    assert run.returncode == 2 and "cannot write: File too large; make room" in run.stderr


def test_write_whole_of_a_file_name_that_is_no_unicode_keeps_its_bytes(tmp_path):
    write_whole(tmp_path / "r.html", b"gr\xf6.csv".decode(errors="surrogateescape"))
    assert (tmp_path / "r.html").read_bytes() == b"gr\xf6.csv"


def test_commands_of_other_rooms(capsys, monkeypatch):
    monkeypatch.setattr(trainwright.cli.command, "an_extra", Extra(), raising=False)
    register(monkeypatch, extra="trainwright.cli.command:an_extra")
    assert "does something else" in run(capsys, "--help")[1]
    assert run(capsys, "extra", "--times", "2") == (7, "extra extra \n", "")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:command", "it needs the module 'no_such_module'"),
        ("trainwright.cli.command:nothing", "AttributeError"),
        ("trainwright.cli.command:GROUP", "AttributeError"),
    ],
)
def test_cli_broken_extra_breaks_alone(capsys, monkeypatch, value, reason):
    register(monkeypatch, broken=value)
    status, out, _ = run(capsys, "--help")
    assert status == 0 and reason in out
    message = complaint(capsys, "broken", "--any", "thing")
    assert message.startswith("command 'broken' is not available:") and reason in message
    assert run(capsys, "listing", "--part", "forward")[0] == 0


def test_unexpected_errors_keep_their_traceback(monkeypatch):
    def bug(args):
        raise ValueError("a bug")

    monkeypatch.setattr(Extra, "run", staticmethod(bug))
    monkeypatch.setattr(trainwright.cli.command, "an_extra", Extra(), raising=False)
    register(monkeypatch, extra="trainwright.cli.command:an_extra")
    with pytest.raises(ValueError, match="a bug"):
        main(["extra"])


def test_command_without_memory_is_one_error(monkeypatch, capsys):
    def starved(args):
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr(Extra, "run", staticmethod(starved))
    monkeypatch.setattr(trainwright.cli.command, "an_extra", Extra(), raising=False)
    register(monkeypatch, extra="trainwright.cli.command:an_extra")
    message = complaint(capsys, "extra")
    assert message.startswith("too little memory (Unable to allocate 3 TiB): use fewer")


def test_expected_errors_can_be_traced(capsys):
    with pytest.raises(ValueError, match="unknown network"):
        main(["--traceback", "listing", "nope"])


def test_cli_train_leaves_every_file_of_a_run(capsys, fake, tmp_path, drawing):
    out = tmp_path / "deep" / "run"
    with drawing():
        status, text, err = run(capsys, *SHORT, "--out", out)
    assert status == 0
    for word in ("test accuracy", "cycles", "model", "ranks", "report.html", "factors"):
        assert word in text
    assert "step 22/50: loss" in err and "test" in err
    names = {"report.html", "result.json", "history.jsonl", "model.safetensors", "pictures"}
    assert {path.name for path in out.iterdir()} == names
    pictures = {"accuracy", "loss", "ranks", "scales", "cycles", "confusion", "samples"}
    assert {path.stem for path in (out / "pictures").iterdir()} == pictures
    assert all(p.read_bytes()[:4] == b"\x89PNG" for p in (out / "pictures").iterdir())
    page = (out / "report.html").read_text()
    assert page.count("<figcaption>") == 7 and ".png</figcaption>" not in page
    assert "<pre><code>trainwright train " in page and "filter: invert" in page
    # Pictures in base64 have every text of letters by chance, but no colon.
    assert page.count("data:image/png;base64,") == 7 and "://" not in page
    result = json.loads((out / "result.json").read_text())
    assert result["step_cost"]["cycles"] == result["cycles_last_step"] > 0
    assert f"<td>{result['cycles_last_step']:,} counted, forward and backward" in page
    model = load_model(out / "model.safetensors").model
    assert [list(r) for r in model.network.ranks] == result["ranks"] != result["initial_ranks"]
    assert sum(map(sum, result["confusion"])) == result["test_samples"] == 360
    lines = (out / "history.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds.count("step") == 50 and kinds.count("evaluation") == 3
    assert json.loads(lines[-1])["accuracy"] == result["test_accuracy"]
    own, regression = out / "pictures" / "mine.png", ("r2", "predictions")
    for path in (own, *(out / "pictures" / f"{name}.png" for name in regression)):
        path.write_bytes(b"of an earlier run")
    assert run(capsys, *SHORT, "--out", out, "--force")[0] == 0
    assert [*(out / "pictures").iterdir()] == [own]


def test_json_is_one_object_and_nothing_else(capsys, fake, tmp_path):
    arguments = [*SHORT, "--backend", "rtl", "--verify", "10", "--json"]
    status, text, _ = run(capsys, *arguments, "--out", tmp_path / "a")
    assert status == 0 and text.count("\n") == 1
    result = json.loads(text)
    assert result["status"] == "finished" and result["steps"] == 50
    assert result["cycles"] == 50 * 3000 and result["cycles_per_step"] == 3000
    assert (result["verified_steps"], result["values_compared"]) == (5, 500)
    assert result["mismatches"] == 0 and len(result["digest"]) == 64
    network = load_network("digits").with_ranks(result["ranks"])
    assert result["model_bits"] == network.model_bits < result["initial_model_bits"]
    assert result["reduction"] == pytest.approx(network.reduction, abs=1e-3)
    again = json.loads(run(capsys, *arguments, "--out", tmp_path / "b")[1])
    assert again["digest"] == result["digest"]


def test_cli_mismatch_is_a_status_of_its_own(capsys, fake, tmp_path):
    fake.verification = Verification(1, 3, 100, 2)
    arguments = ["--backend", "rtl", "--verify", "25", "--out", tmp_path / "r"]
    status, text, _ = run(capsys, *SHORT, *arguments)
    assert status == 1 and "2 steps, 6 tensors, 200 values: 4 mismatches" in text


def test_cli_finished_run_is_not_overwritten(capsys, fake, tmp_path):
    out = tmp_path / "r"
    short = ["train", "--steps", "3", "--out", out]
    assert run(capsys, *short)[0] == 0
    before = (out / "result.json").read_text()
    assert "holds a finished run; --force replaces it" in complaint(capsys, *short)
    assert "is finished" in complaint(capsys, "train", "--resume", "--out", out)
    assert (out / "result.json").read_text() == before
    assert run(capsys, *short, "--force", "--seed", "4")[0] == 0
    assert (out / "result.json").read_text() != before


@pytest.mark.parametrize(
    ("argv", "note"),
    [
        (
            ["--steps", "1", "--epochs", "1"],
            "--steps 1 ends the run, after 1 step, and --epochs 1 would be 22 steps: omit one",
        ),
        (
            ["--steps", "99", "--epochs", "1"],
            "--epochs 1 ends the run, after 22 steps, and --steps 99 would be 99 steps: omit one",
        ),
    ],
)
def test_cli_steps_next_to_epochs_say_which_of_them_ends_the_run(
    capsys, fake, tmp_path, argv, note
):
    status, _, err = run(capsys, "train", *argv, "--out", tmp_path / "r")
    assert status == 0 and note in err


@pytest.mark.parametrize("argv", [["--steps", "2"], ["--steps", "22", "--epochs", "1"]])
def test_cli_steps_without_other_epochs_get_no_note(capsys, fake, tmp_path, argv):
    status, _, err = run(capsys, "train", *argv, "--out", tmp_path / "r")
    assert status == 0 and "ends the run" not in err


@pytest.mark.parametrize(
    ("rows", "options", "note"),
    [
        (45, [], "10 epochs of so little data are 20 steps, too few to learn much: --epochs 150"),
        (45, ["--epochs", "10"], None),
        (45, ["--steps", "10"], None),
        (250, [], None),  # 12 batches of 16 an epoch
    ],
)
def test_cli_default_epochs_on_little_data_say_how_many_are_enough(
    capsys, fake, tmp_path, rows, options, note
):
    data, out = tmp_path / "t.csv", tmp_path / "r"
    data.write_text("a,b\n" + "".join(f"{n},{'xy'[n % 2]}\n" for n in range(rows)))
    argv = ["train", "--data", data, "--batch", "16", "--out", out, *options]
    status, _, err = run(capsys, *argv)
    assert status == 0 and ("so little data" in err) == (note is not None)
    assert note is None or note in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["plan", "digits", "--wide", "--json"], "--wide only applies to tables"),
        (["profile", "digits", "--wide", "--json"], "--wide only applies to tables"),
        (
            ["profile", "digits", "--backend", "golden", "--seed", "3"],
            "--seed only applies to measured cycles",
        ),
        (
            ["profile", "digits", "--backend", "golden", "--seed", "0"],
            "--seed only applies to measured cycles",
        ),
        (["train", "--network", "digits", "--download"], "--download fetches"),
        (
            ["check", "--product", "2x2x2", "--network", "digits", "--backend", "golden"],
            "--network is for a training step",
        ),
        (["check", "--product", "2x2x2", "--batch", "64"], "--batch is for a training step"),
        (["listing", "x.trwp", "--update", "host"], "--update is for a network"),
        (["bench", "compile", "--batch", "64"], "--batch is for one network: add --network"),
        (["bench", "cycles", "--random", "1", "--batch", "64"], "--batch only applies to named"),
        (
            ["bench", "mcf", "--operation", "add", "--results", "5", "--repeat", "1"],
            "--results only applies to all operations",
        ),
        (
            ["plan", "digits", "--accelerator", "lanes=8", "--accelerator", "lanes=16"],
            "lanes is given twice, as '8' and as '16'",
        ),
        (
            ["plan", "digits", "--preset", "zu3eg", "--preset", "lfe5u-25f"],
            "preset is given twice, as 'zu3eg' and as 'lfe5u-25f'",
        ),
        (
            ["train", "--data", "x.csv", "--target", "a", "--target", "b"],
            "argument --target: is given twice, as 'a' and as 'b'",
        ),
        (
            ["trace", "digits", "--descriptor", "1", "--descriptor", "2..3"],
            "argument --descriptor: is given twice, as (1, 1) and as (2, 3): give it once",
        ),
        (["plan", "digits", "--batch", "64", "--batch", "16"], "as 64 and as 16: give it once"),
        (["train", "--prior", "--no-prior"], "as '--prior' and as '--no-prior'"),
        (["bench", "cycles", "--seed", "1", "--seed", "2"], "argument --seed: is given twice"),
    ],
)
def test_cli_options_without_effect_are_refused(capsys, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a finished run in the checkout would be another error
    assert message in complaint(capsys, *argv)


def test_cli_parser_of_several_lines_takes_the_values_of_each():
    parser = _parser(OWN, "plan")
    for batch in (8, 16):
        assert parser.parse_args(["plan", "digits", "--batch", str(batch)]).batch == batch


def test_cli_options_of_every_command_refuse_a_second_value():
    taking = [_parser([*OWN, *registered()], ALL)]
    for place in taking:
        for action in place._actions:
            if isinstance(action, argparse._SubParsersAction):
                taking += action.choices.values()
            assert type(action) not in (argparse._StoreAction, argparse.BooleanOptionalAction)
    assert len(taking) > len(OWN)


def test_cli_folder_of_other_things_is_left_alone(capsys, fake, tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    short = ["train", "--steps", "3", "--out", tmp_path]
    assert "is not empty and holds no run of trainwright" in complaint(capsys, *short)
    assert run(capsys, *short, "--force")[0] == 0
    assert (tmp_path / "thesis.tex").read_text() == "all my work"
    blocked = tmp_path / "thesis.tex" / "run"
    assert "--out" in complaint(capsys, "train", "--steps", "3", "--out", blocked)


def test_cli_folder_of_a_run_without_checkpoint_is_named_as_such(capsys, fake, tmp_path):
    (tmp_path / "history.jsonl").write_text("")
    short = ["train", "--steps", "3", "--out", tmp_path]
    assert "holds a run without a checkpoint" in complaint(capsys, *short)
    (tmp_path / "notes").write_text("")
    assert "holds no run of trainwright" in complaint(capsys, *short)
    assert run(capsys, *short, "--force")[0] == 0
    assert (tmp_path / "result.json").exists()


def test_cli_one_run_at_a_time_writes_to_a_folder(capsys, fake, tmp_path):
    out, short = tmp_path / "r", ["train", "--steps", "3", "--out", tmp_path / "r"]
    other = RunFolder(out)
    other.claim()
    message = f"another run is writing to {out}: wait for its end, or name another --out"
    assert message in complaint(capsys, *short)
    assert message in complaint(capsys, *short, "--force")
    (out / "checkpoint.safetensors").write_bytes(b"of the other run")
    assert message in complaint(capsys, "train", "--resume", "--out", out)
    (out / "checkpoint.safetensors").unlink()
    other.release()
    assert run(capsys, *short)[0] == 0
    assert not (out / ".lock").exists()
    assert "holds a finished run" in complaint(capsys, *short)


def test_cli_killed_run_holds_its_folder_no_longer(capsys, tmp_path):
    short = ["train", "--steps", "30", "--no-prior"]
    whole = json.loads(run(capsys, *short, "--json", "--out", tmp_path / "whole")[1])
    out = tmp_path / "r"
    command = [sys.executable, "-m", "trainwright.cli", *short, "--out", str(out)]
    with subprocess.Popen(
        [*command, "--checkpoint-seconds", "0"], stderr=subprocess.DEVNULL
    ) as process:
        while not (out / "checkpoint.safetensors").exists():
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGSTOP)
        message = complaint(capsys, "train", "--resume", "--out", out)
        assert f"another run is writing to {out}" in message
        process.kill()
    status, text, _ = run(capsys, "train", "--resume", "--out", out, "--json")
    assert status == 0 and json.loads(text)["digest"] == whole["digest"]


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_finishes_the_step_and_resuming_gives_the_same_bits(capsys, fake, tmp_path):
    whole = json.loads(run(capsys, *SHORT, "--json", "--out", tmp_path / "whole")[1])
    fake.backwards, fake.at = 0, {30: interrupt}
    out = tmp_path / "a run"
    status, text, err = run(capsys, *SHORT, "--json", "--out", out)
    assert status == 130
    command = f"trainwright train --resume --out '{out}'"
    assert f"interrupted after step 30; go on with\n  {command}" in err
    assert json.loads(text) == {
        "status": "interrupted",
        "steps": 30,
        "out": str(out),
        "resume": command,
    }
    assert {p.name for p in out.iterdir()} == {"checkpoint.safetensors", "history.jsonl"}
    assert "holds an unfinished run; --resume" in complaint(capsys, *SHORT, "--out", out)
    fake.at = {}
    before = load_checkpoint(out / "checkpoint.safetensors").run["seconds"]
    begin = time.monotonic()
    status, text, _ = run(capsys, "train", "--resume", "--out", out, "--json")
    resumed = json.loads(text)
    assert status == 0 and resumed["digest"] == whole["digest"]
    assert resumed["test_accuracy"] == whole["test_accuracy"]
    assert before < resumed["seconds"] <= before + time.monotonic() - begin + 0.001
    assert not (out / "checkpoint.safetensors").exists()


def test_ctrl_c_twice_abandons_the_step(capsys, fake, tmp_path):
    def twice():
        interrupt()
        interrupt()

    fake.at = {30: twice}
    status, _, err = run(capsys, *SHORT, "--out", tmp_path / "r")
    assert status == 130 and "interrupted after step 29" in err
    assert load_checkpoint(tmp_path / "r" / "checkpoint.safetensors").state.step == 29


def test_cli_failing_accelerator_is_one_error(capsys, fake, tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def fail():
        raise AcceleratorError("the simulation\nstands still")

    fake.at = {5: fail}
    status, _, err = run(capsys, *SHORT, "--out", tmp_path / "r")
    assert status == 2
    assert err.splitlines()[-1] == "trainwright: error: the simulation stands still"
    assert signal.getsignal(signal.SIGINT) is before
    # One that fails because Ctrl-C reached its own processes too was interrupted.
    fake.backwards, fake.at = 0, {5: lambda: (interrupt(), fail())}
    assert run(capsys, *SHORT, "--force", "--out", tmp_path / "r")[0] == 130


def test_resuming_with_other_options(capsys, fake, tmp_path):
    out = ["--out", tmp_path]
    fake.at = {10: interrupt}
    assert run(capsys, *SHORT, "--seed", "1", *out)[0] == 130
    resume = ["train", "--resume", *out]
    message = complaint(capsys, *resume, "--seed", "2")
    assert "the checkpoint was made with --seed 1, not 2" in message
    assert "with --prior on, not off;" in complaint(capsys, *resume, "--no-prior")
    assert "with --plan auto, not paper" in complaint(capsys, *resume, "--plan", "paper")
    assert "--pixels unset, not 4;" in complaint(capsys, *resume, "--pixels", "4")
    assert "belongs to network 'digits'" in complaint(capsys, *resume, "--network", "fashion")
    path = Path(tmp_path) / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert "is damaged" in complaint(capsys, *resume)
    assert path.exists()
    path.unlink()
    assert "there is no checkpoint.safetensors" in complaint(capsys, *resume)
    assert run(capsys, *resume, "--seed", "1")[0] == 2


def test_equal_options_may_be_repeated_when_resuming(capsys, fake, tmp_path):
    fake.at = {10: interrupt}
    assert run(capsys, *SHORT, "--out", tmp_path)[0] == 130
    status, text, _ = run(capsys, *SHORT, "--seed", "0", "--prior", "--resume", "--out", tmp_path)
    assert status == 0 and "test accuracy" in text


def test_resuming_on_another_accelerator_notes_that_bits_may_differ(capsys, fake, tmp_path):
    note = "with another accelerator the run may end with other bits"
    for sizes, noted in ((("--accelerator", "lanes=8"), 1), ((), 0), (("--preset", "zu3eg"), 0)):
        fake.backwards, fake.at = 0, {10: interrupt}
        assert run(capsys, *SHORT, "--force", "--out", tmp_path)[0] == 130
        fake.at = {}
        status, _, err = run(capsys, "train", "--resume", *sizes, "--out", tmp_path)
        assert status == 0 and err.count(note) == noted


def test_listing_prints_programs(capsys):
    status, text, _ = run(capsys, "listing", "digits", "--batch", "8")
    assert status == 0 and "; forward:" in text and "; backward:" in text and "HALT" in text
    assert "must be at least 1" in complaint(capsys, "listing", "--batch", "0")


def test_check_and_train_on_the_golden_model(capsys, tmp_path):
    if "golden" not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    status, text, _ = run(capsys, "check", "--backend", "golden", "--batch", "2", "--json")
    assert status == 0 and json.loads(text)["mismatches"] == 0
    status, text, _ = run(capsys, "train", "--steps", "3", "--json", "--out", tmp_path / "r")
    assert status == 0 and json.loads(text)["cycles"] == 0


def test_cli_listing_saves_and_reads_programs(capsys, tmp_path):
    status, text, _ = run(
        capsys, "listing", "--wide", "digits", "--save", tmp_path, "--part", "forward"
    )
    file = tmp_path / "forward.trwp"
    assert status == 0 and file.exists() and not (tmp_path / "backward.trwp").exists()
    status, again, _ = run(capsys, "listing", "--wide", file)
    assert status == 0 and len(again.splitlines()) == len(text.splitlines()) - 1
    other = "compiled for other accelerator parameters"
    assert other in complaint(capsys, "listing", file, "--accelerator", "factor_width=8")
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{file}: truncated" in complaint(capsys, "listing", file)
    assert "cannot read program" in complaint(capsys, "listing", tmp_path / "none.trwp")


def test_listing_of_a_saved_program_takes_the_sizes_next_to_it(capsys, tmp_path):
    assert run(capsys, "listing", "--save", tmp_path, "--formats", "activation=posit(8,0)")[0] == 0
    file = tmp_path / "forward.trwp"
    assert run(capsys, "listing", file)[0] == 0
    other = complaint(capsys, "listing", file, "--accelerator", "vector_engine=1")
    assert "vector_engine=0, formats=posit(8,0): omit --accelerator" in other
    (tmp_path / "accelerator.txt").unlink()
    assert "accelerator.txt" in complaint(capsys, "listing", file)


def test_ranks_are_an_option(capsys):
    status, text, _ = run(capsys, "listing", "digits", "--ranks", "5|3", "--batch", "8")
    assert status == 0 and "HALT" in text
    assert "over its bound 8" in complaint(capsys, "listing", "digits", "--ranks", "5|9")
    for ranks in ("5;3", "0", "5|0", "|"):
        assert "must be ranks such as" in complaint(capsys, "listing", "digits", "--ranks", ranks)


STOPPED = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from trainwright.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("trainwright.cli.core", ["posit", "1"]),
        ("argparse", ["--help"]),
    ],
)
def test_ctrl_c_at_first_imports_is_one_line(module, argv):
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, module, *argv], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, "trainwright: interrupted\n")


class Stop:
    """Importer that is interrupted at one module."""

    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("trainwright.posit.explain", ["posit", "1", "--format", "8,0"]),  # while parsing
        ("trainwright.posit.experiments.speed", ["bench", "posit"]),  # while running
    ],
)
def test_ctrl_c_at_later_imports_is_one_line(module, argv, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    package, _, name = module.rpartition(".")
    monkeypatch.delattr(importlib.import_module(package), name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Stop(module), *sys.meta_path])
    assert run(capsys, *argv) == (130, "", "trainwright: interrupted\n")


@pytest.mark.parametrize("value", ["-1/3", "-1e-3", "-inf"])
def test_posit_of_a_negative_number_says_where_it_goes(capsys, value):
    assert f"goes behind '--', as in -- {value}" in complaint(capsys, "posit", value)
    assert main(["posit", "--", value]) == 0


def test_stray_word_with_a_digit_gets_no_hint_of_negative_numbers(capsys):
    assert "goes behind" not in complaint(capsys, "train", "--resume", "d2")


@pytest.mark.parametrize(
    ("argv", "only"),
    [
        (
            ["reproduce", "qr", "--experiment", "dots", "--rows", "500"],
            "--rows only applies to cond",
        ),
        (
            ["reproduce", "ape", "--experiment", "figure-8", "--largest", "9"],
            "to figure-15: omit it",
        ),
        (["reproduce", "posit", "--experiment", "figure-2", "--epochs", "1"], "figure-8, figure-9"),
        (
            ["reproduce", "mctensor", "--experiment", "figures", "--seeds", "2"],
            "to table-3: omit it",
        ),
        (
            ["bench", "cycles", "--random", "1", "--batch", "16", "--predict"],
            "--batch only applies",
        ),
        (
            ["bench", "cycles", "--network", "digits", "--seed", "1"],
            "--seed only applies to --random",
        ),
    ],
)
def test_option_of_another_part_of_a_command_is_refused(capsys, tmp_path, monkeypatch, argv, only):
    monkeypatch.chdir(tmp_path)
    assert only in complaint(capsys, *argv)
    assert not list(tmp_path.iterdir())


def test_warning_of_a_run_is_one_line_without_a_place_in_the_source(tmp_path):
    code = (
        "import sys; from trainwright.fixed.health import TensorHealth; "
        "TensorHealth.observe = lambda *_, **__: iter(['l1 is lost']); "
        "from trainwright.report import pictures; pictures.draw_all = lambda *_: {}; "
        "from trainwright.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["train", "--network", "digits", "--steps", "1", "--out", str(tmp_path / "run")]
    run = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert "trainwright: warning: l1 is lost" in run.stderr.splitlines()
    assert ".py" not in run.stderr
