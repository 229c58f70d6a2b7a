"""One session of ``trainwright eval``, from the options to the exit status."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainwright.cli.backend import check_simulation_options, memory_options, opened
from trainwright.cli.errors import OptionError
from trainwright.cli.output import teller, write_results
from trainwright.data import DataSet, is_npz, load_data_set
from trainwright.driver import Driver
from trainwright.report.classes import ClassResult, class_results, class_table
from trainwright.train.batches import InputQuantiser, check_fit, class_names
from trainwright.train.evaluate import Evaluation, evaluate
from trainwright.train.export import Origin, TrainedModel
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
    dataset = args.dataset or ("npz" if is_npz(args.data) else origin.dataset)
    data = load_data_set(dataset, args.data, fetch=args.download)
    check_fit(trained.model.network, data)
    evaluation = _classify(args, trained, origin, data)
    names = _names(trained, origin, data)
    results = class_results(evaluation, names)
    content = _content(args, trained, data, evaluation, results)
    if args.out:
        _write(Path(args.out), content, evaluation, data, names)
    if args.json:
        print(json.dumps(content))
        return 0
    print(class_table(results))
    print(
        f"{evaluation.accuracy:.2%} of {len(evaluation.labels):,} test images of {data.name}, "
        f"{content['model_bits']:,} bits, {content['reduction']:.1f} times smaller than dense "
        "float32"
    )
    if args.out:
        print(f"written to {args.out}", file=sys.stderr)
    return 0


def _classify(
    args: argparse.Namespace, trained: TrainedModel, origin: Origin, data: DataSet
) -> Evaluation:
    """Run the forward programs of the model over the test split."""
    network = trained.model.network
    test = data.test if args.test_samples is None else data.test.first(args.test_samples)
    tell = teller("classifying test images")

    def classify(driver: StepDriver) -> Evaluation:
        quantiser = InputQuantiser(network, data.full_scale, driver.input_exponent, origin.pixels)
        return evaluate(
            driver, trained.model, trained.scales, quantiser, test, origin.batch, progress=tell
        )

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
    return {
        "model": args.model,
        "network": network.name,
        "dataset": data.name,
        "backend": "float32" if network.widths.is_float else args.backend,
        "test_accuracy": evaluation.accuracy,
        "test_samples": len(evaluation.labels),
        "classes": list(map(asdict, results)),
        "confusion": evaluation.confusion(network.classes).tolist(),
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
        "samples.png": draw_samples(evaluation, data, names),
        "eval.json": json.dumps(content, indent=1) + "\n",
    }
    write_results(folder, files)
