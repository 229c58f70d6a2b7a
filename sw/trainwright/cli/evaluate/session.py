"""One session of ``trainwright eval``, from the options to the exit status."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trainwright.cli.backend import check_simulation_options, memory_options, opened
from trainwright.cli.errors import OptionError
from trainwright.cli.output import teller, write_results
from trainwright.data import (
    DataError,
    DataSet,
    Split,
    load_data_set,
    load_samples,
    own_data,
)
from trainwright.data.npz import FULL_SCALE, TEST_PART, cut_off_test
from trainwright.data.registry import OWN
from trainwright.driver import Driver
from trainwright.report.classes import ClassResult, class_results, class_table
from trainwright.train.batches import ImageQuantiser, check_fit, class_names
from trainwright.train.evaluate import Evaluation, evaluate
from trainwright.train.export import Origin, TrainedModel, samples_crc
from trainwright.train.float_driver import FloatDriver
from trainwright.train.interfaces import StepDriver
from trainwright.train.stored import load_trained


def run_evaluation(args: argparse.Namespace) -> int:
    """Run ``trainwright eval``; the exit status. Raises the errors that ``cli.errors`` expects."""
    for package in ["safetensors"] + (["matplotlib"] if args.out else []):
        if find_spec(package) is None:
            raise OptionError(f"this needs {package}: pip install 'trainwright[train]'")
    check_simulation_options(args.backend, memory_options(args), args.engine)
    trained, origin = load_trained(Path(args.model))
    data, is_labelled = _data(args, origin)
    check_fit(trained.model.network, data)
    evaluation = _classify(args, trained, origin, data)
    if evaluation.regression is not None:
        return _regression(args, trained, data, evaluation, is_labelled=is_labelled)
    names = _names(trained, origin, data)
    if not is_labelled:
        return _predict(args, evaluation, names)
    results = class_results(evaluation, names)
    content = _content(args, trained, data, evaluation, results)
    if args.out:
        _write(Path(args.out), content, evaluation, data, names)
    if args.json:
        print(json.dumps(content))
        return 0
    print(class_table(results, data.samples_are))
    print(
        f"{evaluation.accuracy:.2%} of {len(evaluation.labels):,} test {data.samples_are} of "
        f"{data.name}, {content['model_bits']:,} bits, {content['reduction']:.1f} times smaller "
        "than dense float32"
    )
    if args.out:
        print(f"written to {args.out}", file=sys.stderr)
    return 0


def _data(args: argparse.Namespace, origin: Origin) -> tuple[DataSet, bool]:
    """Return what to classify, as the test split, and whether its labels are known.

    Of the file or folder that the model was trained on these are the samples that training held
    back; of any other all. Raises `DataError`.
    """
    name = args.dataset or own_data(args.data) or origin.dataset
    preparation = origin.preparation
    if name not in OWN:
        return load_data_set(name, args.data, fetch=args.download), True
    if args.data is None:
        raise DataError(f"{args.model} was trained on data of your own ({name}): give --data FILE")
    if preparation is None:
        raise DataError(
            f"{args.model} was trained on {origin.dataset}, whose samples are bytes: {args.data} "
            "cannot be read as those"
        )
    path = Path(args.data)
    parts = path / "train", path / "test"
    if name == "pictures" and all(part.is_dir() for part in parts):
        path = parts[1]
    samples = load_samples(path, preparation)
    images, labels = samples.images, samples.labels
    if labels is not None and len(labels) >= TEST_PART:
        order, count = cut_off_test(path, len(labels))
        train, held = order[:-count], order[-count:]
        if samples_crc(images[train], labels[train]) == origin.data_crc:
            images, labels = images[held], labels[held]
    known = Split(images, np.zeros(len(images), np.uint8) if labels is None else labels)
    scale = preparation.get("scale")
    data = DataSet(
        path.name, known, known, FULL_SCALE, origin.class_names, preparation,
        channels=preparation.get("channels", 1), scale=None if scale is None else tuple(scale),
    )  # fmt: skip
    return data, labels is not None


def _predict(args: argparse.Namespace, evaluation: Evaluation, names: Sequence[str]) -> int:
    """Print the class of each sample, as nobody told the right one."""
    classes = [str(names[n]) for n in evaluation.predictions.tolist()]
    content = {"model": args.model, "data": args.data, "predictions": classes}
    if args.out:
        write_results(Path(args.out), {"eval.json": json.dumps(content, indent=1) + "\n"})
    print(json.dumps(content) if args.json else "\n".join(classes))
    return 0


def _regression(
    args: argparse.Namespace,
    trained: TrainedModel,
    data: DataSet,
    evaluation: Evaluation,
    *,
    is_labelled: bool,
) -> int:
    """Print the number predicted for each sample, or how far these are from the targets."""
    fit = evaluation.regression
    assert fit is not None
    predictions = fit.predictions.tolist()
    files: dict[str, bytes | str] = {}
    if is_labelled:
        content = _common(args, trained, data, evaluation)
        content |= {"test_r2": fit.r2, "test_mae": fit.mae, "test_rmse": fit.rmse}
        text = (
            f"R2 {fit.r2:.4f}, mean absolute error {fit.mae:.4g}, root mean square {fit.rmse:.4g} "
            f"of {len(predictions):,} test {data.samples_are} of {data.name}"
        )
        if args.out:
            from trainwright.report.pictures import draw_predictions

            files["predictions.png"] = draw_predictions(fit, data.class_names[0])
    else:
        content = {"model": args.model, "data": args.data, "predictions": predictions}
        text = "\n".join(f"{value:.6g}" for value in predictions)
    if args.out:
        files["eval.json"] = json.dumps(content, indent=1) + "\n"
        write_results(Path(args.out), files)
    print(json.dumps(content) if args.json else text)
    return 0


def _classify(
    args: argparse.Namespace, trained: TrainedModel, origin: Origin, data: DataSet
) -> Evaluation:
    """Run the forward programs of the model over the test split."""
    network = trained.model.network
    test = data.test if args.test_samples is None else data.test.first(args.test_samples)
    tell = teller(f"classifying test {data.samples_are}")

    def classify(driver: StepDriver) -> Evaluation:
        quantiser = ImageQuantiser(network, data.full_scale, driver.input_exponent, origin.pixels)
        return evaluate(
            driver, trained.model, trained.scales, quantiser, test, origin.batch, scale=data.scale,
            progress=tell,
        )  # fmt: skip

    if network.widths.is_float:
        return classify(FloatDriver(network))
    with opened(
        args.backend,
        network=network,
        accelerator=origin.accelerator,
        memory=memory_options(args),
        engine=args.engine,
    ) as accelerator:
        return classify(Driver(accelerator, network, origin.batch, plan=origin.plan))


def _names(trained: TrainedModel, origin: Origin, data: DataSet) -> Sequence[str]:
    """Names of the network's classes: the data set's, or the model's where it has only numbers."""
    numbered = data.class_names == tuple(map(str, range(data.classes)))
    same = numbered and data.name == origin.dataset
    return origin.class_names if same else class_names(trained.model.network, data)


def _content(
    args: argparse.Namespace,
    trained: TrainedModel,
    data: DataSet,
    evaluation: Evaluation,
    results: Sequence[ClassResult],
) -> dict[str, Any]:
    network = trained.model.network
    return _common(args, trained, data, evaluation) | {
        "test_accuracy": evaluation.accuracy,
        "classes": list(map(asdict, results)),
        "confusion": evaluation.confusion(network.classes).tolist(),
    }


def _common(
    args: argparse.Namespace, trained: TrainedModel, data: DataSet, evaluation: Evaluation
) -> dict[str, Any]:
    """Return what results of classes and of numbers have in common."""
    network = trained.model.network
    return {
        "model": args.model,
        "network": network.name,
        "dataset": data.name,
        "backend": "float32" if network.widths.is_float else args.backend,
        "test_samples": len(evaluation.labels),
        "ranks": network.ranks,
        "model_bits": network.model_bits,
        "reduction": round(network.reduction, 3),
        "digest": trained.digest,
        "cycles": evaluation.counters.cycles,
        "seconds": round(evaluation.seconds, 3),
    }


def _write(
    folder: Path,
    content: dict[str, Any],
    evaluation: Evaluation,
    data: DataSet,
    names: Sequence[str],
) -> None:
    from trainwright.report.pictures import draw_confusion, draw_samples

    files: dict[str, bytes | str] = {
        "confusion.png": draw_confusion(evaluation, names),
        "eval.json": json.dumps(content, indent=1) + "\n",
    }
    if data.samples_are == "images":
        files["samples.png"] = draw_samples(evaluation, data, names)
    write_results(folder, files)
