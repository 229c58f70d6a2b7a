"""``trainwright.nn.load``: a model of the command line in PyTorch and in ONNX."""

import json
import warnings

import numpy as np
import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright.cli import main
from trainwright.data import load_data_set
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.train.export import FORMAT


@pytest.fixture(scope="module")
def trained(tmp_path_factory, drawing):
    """Return the folder of a finished run on ``digits``."""
    out = tmp_path_factory.mktemp("trained") / "r"
    with drawing():
        assert main(["train", "--steps", "60", "--batch", "48", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def samples():
    data = load_data_set("digits")
    images = torch.from_numpy(data.test.images / data.full_scale).float().flatten(1)
    return images, data.test.labels


def _confusion(logits, labels):
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (labels, np.argmax(np.asarray(logits), 1)), 1)
    return counts.tolist()


def test_loaded_model_compiled_has_the_predictions_of_its_run(trained, samples):
    x, labels = samples
    model = trainwright.compile(tnn.load(trained / "model.safetensors"), batch=48)
    result = json.loads((trained / "result.json").read_text())
    with torch.no_grad():
        assert _confusion(model(x), labels) == result["confusion"]


@pytest.mark.parametrize("pixels", [4, 8])
def test_loaded_model_of_stored_pixels_has_the_predictions_of_eval(
    trained, samples, tmp_path, capsys, pixels
):
    metadata, tensors = decode(trained / "model.safetensors", FORMAT)
    metadata["origin"] |= {"pixels": pixels}  # as of a run of `--update chip --pixels 4`
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode(metadata, tensors))
    assert main(["eval", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    images, labels = samples
    x = images.clone().requires_grad_()
    model = tnn.load(path)
    # As docs/reference/program.md says: halves go up, the bits are repeated, the lowest are cut.
    stored = (2 * (2**pixels - 1) * (images * 16).long() + 16) // 32
    wanted = (stored << 3 | stored >> 1) if pixels == 4 else stored >> 1
    assert torch.equal(model[0](x), wanted / 128)
    logits = trainwright.compile(model, batch=48)(x)
    assert _confusion(logits.detach(), labels) == result["confusion"]
    logits.sum().backward()
    assert x.grad.any()


def test_loaded_model_in_torch_is_near_the_golden_model(trained, samples):
    x, _ = samples
    model = tnn.load(trained / "model.safetensors")
    golden = trainwright.compile(tnn.load(trained / "model.safetensors"), batch=48)
    with torch.no_grad():
        logits, wanted = model(x), golden(x)
    assert logits.shape == (360, 10) and (logits - wanted).norm() < 0.05 * wanted.norm()
    assert not model.training and json.loads((trained / "result.json").read_text())["ranks"] == [
        list(layer.ranks) for layer in model if isinstance(layer, tnn.TTLinear)
    ]


def test_loaded_model_exported_to_onnx_has_the_logits_of_torch(trained, samples, tmp_path):
    pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    x, _ = samples
    path = tmp_path / "model.onnx"
    dense = trainwright.to_torch(tnn.load(trained / "model.safetensors"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        torch.onnx.export(dense, (x,), path, dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(path))
    (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad():
        assert np.allclose(logits, dense(x).numpy(), atol=1e-4)


def test_file_that_holds_no_model_is_one_error(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        tnn.load(path)
