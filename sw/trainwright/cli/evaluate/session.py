"""Session of ``trainwright eval``, from the options to the exit status."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.backend import check_simulation_options, memory_options, opened_for
from trainwright.cli.errors import OptionError, require_packages
from trainwright.cli.options import accelerator_parameters
from trainwright.cli.output import check_results, tell, teller, to_json, write_results
from trainwright.data import DataError, DataSet, Split, load_data_set, load_samples, own_data
from trainwright.data.registry import OWN
from trainwright.driver import Driver, StepDriver
from trainwright.report.classes import class_results, class_table
from trainwright.support.text import amount
from trainwright.support.waiting import say, waiting
from trainwright.train.batches import check_fit, class_names, data_notes, input_quantiser
from trainwright.train.evaluate import Evaluation, LabelKinds, evaluate
from trainwright.train.export import Origin, TrainedModel, held_back
from trainwright.train.float_driver import FloatDriver
from trainwright.train.stored import load_trained

if TYPE_CHECKING:
    from trainwright.cli.evaluate import EvaluationOptions


def run_evaluation(options: "EvaluationOptions") -> int:
    """Run ``trainwright eval``; return the exit status.

    Raises ``UserError``.
    """
    require_packages("safetensors", *(["matplotlib"] if options.out else []))
    check_simulation_options(options.backend, memory_options(options), options.engine)
    if options.out:
        check_results(Path(options.out))
    trained, origin = load_trained(Path(options.model))
    if trained.model.network.widths.is_float and options.backend != "golden":
        raise OptionError(f"{options.model} is in float32, without an accelerator: omit --backend")
    data, is_labelled = _data(options, origin)
    check_fit(trained.model.network, data, is_trained=True)
    tell(data_notes(trained.model.network, data))
    evaluation = _classify(options, trained, origin, data)
    names = _names(trained, origin, data)
    if is_labelled:
        content = _common(options, trained, data, evaluation)
        describe = _fit if evaluation.regression else _accuracy
        figures, text = describe(evaluation, data, names, content)
        content |= figures
    else:
        content, text = _predictions(options, evaluation, names)
    if options.out:
        from trainwright.report.pictures import EVALUATION_PICTURES, draw_evaluation

        files = draw_evaluation(evaluation, data, names) if is_labelled else {}
        files = {**files, "eval.json": to_json(content) + "\n"}
        write_results(Path(options.out), files, EVALUATION_PICTURES)
    print(to_json(content, None) if options.json else text)
    if options.out and not options.json and is_labelled:
        print(f"written to {options.out}", file=sys.stderr)
    return 0


def _data(options: "EvaluationOptions", origin: Origin) -> tuple[DataSet, bool]:
    """Return the samples to classify, as the test split, and whether their labels are known.

    For the file or folder that the model was trained on these are the samples that training held
    back; for any other all. Raises `DataError`.
    """
    name = options.dataset or own_data(options.data) or origin.dataset
    preparation = origin.preparation
    if name not in OWN:
        numbered = {"names": origin.class_names} if name == "npz" else None
        known = (preparation or numbered) if name == origin.dataset else None
        return load_data_set(name, options.data, fetch=options.download, preparation=known), True
    if options.data is None:
        raise DataError(
            f"{options.model} was trained on data of your own ({name}): give --data FILE"
        )
    if preparation is None:
        raise DataError(
            f"{options.model} was trained on {origin.dataset}, whose samples are bytes: "
            f"{options.data} cannot be read as those"
        )
    path = Path(options.data)
    parts = path / "train", path / "test"
    if name == "pictures" and all(part.is_dir() for part in parts):
        path = parts[1]
    with waiting(say, f"reading {path}"):
        samples = load_samples(path, preparation)
    tell(samples.notes)
    images, labels = samples.images, samples.known(preparation)
    if labels is not None:
        if (held := held_back(path, images, labels, origin.data_crc)) is not None:
            images, labels = images[held], labels[held]
        elif path != parts[1] and (name != "text" or path.is_file()):
            tell([f"{path} is not what the model was trained on: all samples are classified"])
    known = Split(images, samples.unknown(preparation) if labels is None else labels)
    scale = preparation.get("scale")
    data = DataSet(
        Path(options.data).name, known, known, origin.full_scale, origin.class_names, preparation,
        channels=preparation.get("channels", 1), scale=None if scale is None else tuple(scale),
    )  # fmt: skip
    return data, labels is not None


def _classify(
    options: "EvaluationOptions", trained: TrainedModel, origin: Origin, data: DataSet
) -> Evaluation:
    """Run the forward programs of the model over the test split."""
    network = trained.model.network
    test = data.test if options.test_samples is None else data.test.first(options.test_samples)

    def classify(driver: StepDriver) -> Evaluation:
        quantiser = input_quantiser(network, data.full_scale, driver.input_exponent, origin.pixels)
        return evaluate(
            driver, trained.model, trained.scales, quantiser, test, origin.batch,
            labels=LabelKinds(data.class_names, data.line_names, data.scale),
            progress=teller(f"classifying test {data.samples_are}"),
        )  # fmt: skip

    if network.widths.is_float:
        return classify(FloatDriver(network))
    parameters = accelerator_parameters(origin.accelerator, network)
    with opened_for(options, parameters) as accelerator:
        return classify(Driver(accelerator, network, origin.batch, plan=origin.plan))


def _names(trained: TrainedModel, origin: Origin, data: DataSet) -> Sequence[str]:
    """Return the names of the classes: the data set's, or the model's if it has only numbers."""
    if trained.model.network.is_regression:
        return data.class_names
    numbered = data.class_names == tuple(map(str, range(data.classes)))
    same = numbered and data.name == origin.dataset
    return origin.class_names if same else class_names(trained.model.network, data)


# -- results ---------------------------------------------------------------------------------------
def _common(
    options: "EvaluationOptions", trained: TrainedModel, data: DataSet, evaluation: Evaluation
) -> dict[str, Any]:
    """Return the figures that results of classes and of numbers have in common."""
    network = trained.model.network
    return {
        "model": options.model,
        "network": network.name,
        "dataset": data.name,
        "backend": "float32" if network.widths.is_float else options.backend,
        "test_samples": len(evaluation.labels),
        "ranks": network.ranks,
        "model_bits": network.model_bits,
        "reduction": round(network.reduction, 3),
        "digest": trained.digest,
        "cycles": evaluation.counters.cycles,
        "seconds": round(evaluation.seconds, 3),
    }


def _predictions(
    options: "EvaluationOptions", evaluation: Evaluation, names: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Return the class or number predicted for each sample, whose labels are not known."""
    if (fit := evaluation.regression) is not None:
        predictions: list[Any] = fit.predictions.tolist()
        text = "\n".join(f"{value:.6g}" for value in predictions)
    elif evaluation.words is not None:
        predictions = evaluation.written
        text = "\n".join(map(" ".join, predictions))
    else:
        predictions = [str(names[n]) for n in evaluation.predictions.tolist()]
        text = "\n".join(predictions)
    return {"model": options.model, "data": options.data, "predictions": predictions}, text


def _fit(
    evaluation: Evaluation, data: DataSet, names: Sequence[str], common: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Describe how far the predicted numbers are from the targets."""
    fit = evaluation.regression
    assert fit is not None
    text = (
        f"R2 {fit.r2:.4f}, mean absolute error {fit.mae:.4g}, root mean square {fit.rmse:.4g} "
        f"of {amount(common['test_samples'], f'test {data.samples_are[:-1]}')} of {data.name}"
    )
    return {"test_r2": fit.r2, "test_mae": fit.mae, "test_rmse": fit.rmse}, text


def _accuracy(
    evaluation: Evaluation, data: DataSet, names: Sequence[str], common: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Describe the classes predicted, class by class."""
    results = class_results(evaluation, names)
    figures = {
        "test_accuracy": evaluation.accuracy,
        "classes": results,
        "confusion": evaluation.confusion_lists(len(names)),
    }
    counted, score = data.samples_are, ""
    if evaluation.words is not None:
        figures["test_f1"] = evaluation.words.f1
        counted, score = "words", f"F1 of spans {evaluation.words.f1:.2%}, "
    if evaluation.lines is not None:
        figures["test_line_accuracy"] = evaluation.lines.accuracy
        score += f"{evaluation.lines.accuracy:.2%} of lines, "
    text = (
        f"{class_table(results, counted)}\n"
        f"{evaluation.accuracy:.2%} of {amount(common['test_samples'], f'test {counted[:-1]}')} of "
        f"{data.name}, {score}{common['model_bits']:,} bits, {common['reduction']:.1f} times "
        "smaller than dense float32"
    )
    return figures, text
