"""Files with the right digest and nonsense inside: refused where they are read, in one line."""

import copy
import json
from random import Random

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from trainwright import posit
from trainwright.cli import main
from trainwright.network import load_network
from trainwright.posit import PositError
from trainwright.support.plain import of_plain
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.train.checkpoint import FORMAT as CHECKPOINT
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.export import FORMAT as MODEL
from trainwright.train.export import Origin, load_model, save_model
from trainwright.train.interfaces import Verification
from trainwright.train.pretrained import FORMAT as FACTORS
from trainwright.train.pretrained import Pretrained, load_pretrained, save_pretrained
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.stored import load_trained

NETWORK = load_network("digits")
ORIGIN = Origin(
    dataset="digits", class_names=tuple("0123456789"), full_scale=16, batch=64, plan="auto"
)


def files(folder):
    """Write one file of each kind; return path, reader and format."""
    state = initial_state(NETWORK, TrainSettings())
    save_model(folder / "model", state.model, state.scales, ORIGIN)
    save_checkpoint(folder / "checkpoint", state, {"origin": vars(ORIGIN)})
    factors = [[p.value for p in layer] for layer in state.model.factors]
    biases = [torch.zeros(layer.output_size) for layer in NETWORK.layers]
    save_pretrained(folder / "factors", Pretrained(NETWORK, factors, biases))
    return {
        "model": (load_model, MODEL),
        "checkpoint": (load_checkpoint, CHECKPOINT),
        "factors": (load_pretrained, FACTORS),
    }


@pytest.fixture
def changed(tmp_path):
    """Write a changed file with a right digest, and read it."""
    kinds = files(tmp_path)

    def read(kind, change):
        reader, form = kinds[kind]
        metadata, tensors = decode(tmp_path / kind, form)
        change(metadata, tensors)
        (tmp_path / "changed").write_bytes(encode(metadata, tensors))
        return reader(tmp_path / "changed")

    for kind in kinds:
        read(kind, lambda metadata, tensors: None)
    return read


def put(name, value):
    """Put ``value`` into the first element of a tensor."""

    def change(metadata, tensors):
        tensors[name] = tensors[name].clone()
        tensors[name].view(-1)[0] = value

    return change


def cast(name, kind):
    def change(metadata, tensors):
        tensors[name] = tensors[name].to(kind)

    return change


def told(*path_and_value):
    *path, last, value = path_and_value

    def change(metadata, tensors):
        at = metadata
        for key in path:
            at = at[key]
        at[last] = value

    return change


NAN, INF = float("nan"), float("inf")
NONSENSE = {
    "NaN masters": ("checkpoint", put("factor.0.1", NAN), "factor.0.1 has NaN or infinite"),
    "infinite bias": ("checkpoint", put("bias.1", INF), "bias.1 has NaN or infinite"),
    "NaN moments": ("checkpoint", put("factor.1.0.second", NAN), "factor.1.0 has NaN"),
    "negative moments": ("checkpoint", put("bias.0.second", -1.0), "second moment is negative"),
    "float64 masters": ("checkpoint", cast("factor.0.0", torch.float64), "torch.float64, not flo"),
    "127 in 4 bits": ("model", put("factor.0.0", 127), "to 127, not within 4 bits"),
    "-9 in 4 bits": ("model", put("factor.1.1", -9), "from -9 to"),
    "factor 0.5": ("model", cast("factor.0.0", torch.float32), "torch.float32, not torch.int8"),
    "wide factor": ("model", cast("factor.0.0", torch.int16), "torch.int16, not torch.int8"),
    "another factor": (
        "model",
        lambda m, t: t["factor.0.0"].bitwise_and_(3),
        "not those of its digest",
    ),
    "NaN bias": ("model", put("bias.0", NAN), "bias.0 has NaN"),
    "short bias": ("model", lambda m, t: t.update({"bias.0": t["bias.0"][:3]}), "bias.0 does not"),
    "NaN factor": ("factors", put("factor.0.0", NAN), "factor.0.0 has NaN"),
    "bias of factors": ("factors", put("bias.1", -INF), "bias.1 has NaN or infinite"),
    "short bias of factors": (
        "factors",
        lambda m, t: t.update({"bias.0": t["bias.0"][:3].clone()}),
        "bias.0 does not have the shape",
    ),
}
EXPONENTS = {
    "exponent 10^6": (10**6, r"factor_exponents is .*Expected `int` <= 256 - at `\$\[0\]\[1\]`"),
    "exponent 0.5": (0.5, "Expected `int`, got `float`"),
    "exponent true": (True, "Expected `int`, got `bool`"),
    "exponent text": ("7" * 1000, r"1,020 characters\) .*Expected `int`, got `str`"),
}
PLAIN = {
    "step": (("step", -1), "-1 steps with 0 records"),
    "step of NaN": (("step", NAN), "step is nan"),
    "steps without records": (("step", 7), "7 steps with 0 records"),
    "run": (("run", 5), "not iterable"),
    "half an epoch": (("settings", "epochs", 2.5), "epochs is 2.5: Expected `int`"),
    "rate": (("settings", "learning_rate", NAN), "learning_rate is nan"),
    "settings": (("settings", [1]), "TrainSettings is .1., not an object"),
    "prior": (("settings", "prior", "interval", True), "interval is True"),
    "prior of text": (("settings", "prior", "paper"), "PriorSettings is 'paper', not an object"),
    "unknown setting": (("settings", "speed", 11), "TrainSettings has no field 'speed'"),
    "verification": (("verification", "steps", "3"), "steps is '3': Expected `int`"),
    "exponents": (
        ("exponents", {"l1.y": 999}),
        "exponents is {'l1.y': 999}: Expected `int` <= 256",
    ),
    "exponents of a list": (("exponents", [1]), "exponents is .1.: Expected `object`, got `array`"),
    "ranks": (("ranks", [[1], ["x"]]), "from 1 to 1048576, not 'x'"),
    "layers": (("factor_exponents", [[0, 0]]), r"exponents of \[2\] factors, not \[2, 2\]"),
    "network": (("network", "layers", 0, "outputs", [4, 10**9]), "not 1000000000"),
    "no network": (("network", None), "must be a table, not None"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_in_tensors(changed, name):
    kind, change, message = NONSENSE[name]
    with pytest.raises(CheckpointError, match=message):
        changed(kind, change)


@pytest.mark.parametrize("kind", ["model", "checkpoint"])
@pytest.mark.parametrize("name", EXPONENTS)
def test_exponents_that_no_number_has(changed, kind, name):
    value, message = EXPONENTS[name]
    with pytest.raises(CheckpointError, match=message):
        changed(kind, told("factor_exponents", 0, 1, value))


@pytest.mark.parametrize("name", PLAIN)
def test_nonsense_in_headers(changed, name):
    place, message = PLAIN[name]
    with pytest.raises(CheckpointError, match=message):
        changed("checkpoint", told(*place))


def test_tensors_of_types_that_are_never_written(tmp_path, changed):
    for digest in (None, "x"):
        header = {"trainwright": json.dumps({"format": CHECKPOINT, "sha256": digest})}
        save_file({"a": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "b", header)
        with pytest.raises(CheckpointError, match="do not have the digest"):
            load_checkpoint(tmp_path / "b")
    save_file({"a": torch.zeros(2)}, tmp_path / "b", {"trainwright": "[" * 100_000})
    with pytest.raises(CheckpointError, match="damaged or not of trainwright"):
        load_checkpoint(tmp_path / "b")


def test_stored_nonsense_largest_values_are_read(changed):
    """At the limits, and the digest of what is there."""
    changed("checkpoint", told("exponents", {"l1.y": 256, "l2.y": -256}))
    changed("checkpoint", put("factor.0.0.second", 0.0))
    with pytest.raises(CheckpointError, match="are not those of its digest"):
        changed("model", put("factor.0.0", 7))


def test_eval_of_a_model_of_nonsense(tmp_path, capsys):
    files(tmp_path)
    metadata, tensors = decode(tmp_path / "model", MODEL)
    put("factor.0.0", 127)(metadata, tensors)
    (tmp_path / "m.safetensors").write_bytes(encode(metadata, tensors))
    assert main(["eval", str(tmp_path / "m.safetensors")]) == 2
    said = capsys.readouterr()
    assert "not within 4 bits" in said.err and said.err.count("\n") == 1 and not said.out


def scrambled(random: Random, value):
    """Replace one place of a JSON value by something else."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        return {**value, key: scrambled(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        return [*value[:at], scrambled(random, value[at]), *value[at + 1 :]]
    return random.choice(
        [
            None,
            True,
            -1,
            0,
            0.5,
            1 << 40,
            1 << 70,
            10**4000,
            NAN,
            INF,
            "",
            "x",
            [],
            [[]],
            {},
            {"a": 1},
        ]
    )


@pytest.mark.parametrize("kind", ["model", "checkpoint", "factors"])
def test_stored_nonsense_scrambled_headers(tmp_path, kind):
    """Seeded: read, or refused in a line; nothing else."""
    reader, form = files(tmp_path)[kind]
    metadata, tensors = decode(tmp_path / kind, form)
    path, refused = tmp_path / "changed", 0
    for seed in range(250):
        random = Random(f"{kind} {seed}")
        content, given = scrambled(random, copy.deepcopy(metadata)), dict(tensors)
        if random.random() < 0.3:
            name = random.choice(list(given))
            given[name] = random.choice(
                [torch.zeros(0), torch.zeros(3, 3), given[name].to(torch.int8), given[name] * NAN]
            )
        if not isinstance(content, dict):
            continue
        path.write_bytes(encode({**content, "format": form}, given))
        for read in (reader, load_trained):
            try:
                read(path)
            except CheckpointError as error:
                refused += 1
                assert str(path) in str(error)
    assert refused > 150


@pytest.mark.parametrize("kind", ["model", "checkpoint", "factors"])
def test_stored_nonsense_mangled_bytes(tmp_path, kind):
    reader, _ = files(tmp_path)[kind]
    good, path = (tmp_path / kind).read_bytes(), tmp_path / "changed"
    for seed in range(150):
        random = Random(f"bytes {kind} {seed}")
        content = bytearray(good)
        for _ in range(random.randint(1, 3)):
            content[random.randrange(random.choice((8, 2000, len(content))))] = random.getrandbits(
                8
            )
        path.write_bytes(content[: random.choice((len(content), random.randrange(len(content))))])
        try:
            reader(path)
        except CheckpointError as error:
            assert str(path) in str(error)


# Posits.


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ("[]", "its formats are \\[\\], not an object"),
        ("3", "its formats are 3"),
        ('{"y": "16,2"}', "format of 'y' and no such tensor"),
        ('{"x": 16}', "holds no posits"),
        ('{"x": "99,2"}', "holds no posits"),
        (f'{{"x": "{"9" * 5000},2"}}', "holds no posits"),
        ('{"x": "8,2"}', "codes of posit\\(8,2\\) are 0 to 255, not 65535"),
        ('{"f": "16,2"}', "posit codes are integers, not torch.float32"),
        ("{" * 100_000, "holds no posits"),
    ],
)
def test_posit_files_of_nonsense(tmp_path, formats, message):
    path = tmp_path / "x.safetensors"
    tensors = {"x": torch.tensor([0, 65535], dtype=torch.int32), "f": torch.ones(2)}
    save_file(tensors, path, {"posits": formats})
    with pytest.raises(PositError, match=message):
        posit.load_file(path)
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {"x", "f"}


def test_stored_data_becomes_declared_type():
    assert of_plain(Verification, {"steps": 3}) == Verification(steps=3)
    assert of_plain(TrainSettings, {"steps": None, "learning_rate": 0.5}).learning_rate == 0.5
    for value in (1 << 63, True, 1.0, "1", None, [1]):
        with pytest.raises(TypeError, match="steps is"):
            of_plain(Verification, {"steps": value})
