"""Data of more than 256 classes: what is read, and what is counted and drawn of them."""

from itertools import pairwise

import numpy as np
import pytest

from trainwright.accelerator import Counters
from trainwright.data import DataError, OwnOptions, load_data_set, load_samples
from trainwright.report import pictures as pictures_of_run
from trainwright.report.classes import class_results
from trainwright.report.pictures import draw_confusion
from trainwright.support.figure import label, literal, new_figure, to_png
from trainwright.train.evaluate import Evaluation


def load(path, **options):
    return load_data_set("table", path, own=OwnOptions(**options))


def table(path, rows, head):
    path.write_text("".join(f"{line}\n" for line in (head, *map(",".join, rows))))
    return path


def test_table_texts_and_pictures_have_more_than_256_classes(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rows = [(str(n % 7), f"c{n % 300:03}") for n in range(1500)]
    data = load(table(tmp_path / "t.csv", rows, "x,y"))
    assert data.classes == 300
    told = [data.class_names[label] for label in data.test.labels]
    assert told == [rows[n][1] for n in np.random.RandomState(0).permutation(1500)[1200:]]
    assert data.preparation is not None
    again = load_samples(tmp_path / "t.csv", data.preparation).labels
    assert again is not None
    assert [data.class_names[label] for label in again] == [kind for _, kind in rows]
    lines = tmp_path / "l.txt"
    lines.write_text("".join(f"{kind}\ta word {x}\n" for x, kind in rows))
    read = load_data_set("text", lines)
    assert [read.class_names[label] for label in read.test.labels] == told
    for n in range(300):
        folder = tmp_path / "p" / f"k{n:03}"
        folder.mkdir(parents=True)
        for m in range(2):
            image.new("L", (2, 2), n % 256).save(folder / f"{m}.png")
    pictures = load_data_set("pictures", tmp_path / "p")
    assert pictures.classes == 300 and pictures.train.labels.max() == 299
    for split in pictures.splits:
        assert (split.images[:, 0, 0] == split.labels % 256).all()
    regression = [(a, str(int(b[1:]))) for a, b in rows]
    assert load(table(tmp_path / "n.csv", regression, "x,y")).scale is not None
    asked = load(tmp_path / "n.csv", task="classification")
    assert asked.scale is None and asked.classes == 300


def test_class_results_of_many_classes_are_those_of_the_matrix():
    random = np.random.RandomState(4)
    labels, guesses = random.randint(0, 50, (2, 4000))
    guesses[::2] = labels[::2]
    labels[labels == 9] = 8  # a class without a sample
    evaluation = Evaluation(guesses, labels, Counters(), 1.0)
    matrix = evaluation.confusion(50)
    for n, result in enumerate(class_results(evaluation, list(map(str, range(50))))):
        wrong = matrix[n].copy()
        wrong[n] = 0
        assert result.samples == matrix[n].sum() and result.correct == matrix[n, n]
        assert result.precision == matrix[n, n] / matrix[:, n].sum()
        assert result.mistaken_for == (str(wrong.argmax()) if wrong.any() else None)
    assert evaluation.confusion_lists(1024) is not None
    assert evaluation.confusion_lists(1025) is None


def test_confusion_of_many_classes_draws_those_with_mistakes(monkeypatch):
    labels = np.repeat(np.arange(300), 2)
    guesses = labels.copy()
    guesses[[40, 41, 43]] = 77  # both samples of class 20, one of 21
    figures = []
    monkeypatch.setattr(pictures_of_run, "to_png", lambda f: figures.append(f) or b"")
    names = [f"n{n}" for n in range(300)]
    draw_confusion(Evaluation(guesses, labels, Counters(), 1.0), names)
    (axes,) = figures[0].axes
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert len(shown) == 32 and {"n20", "n21", "n77"} <= set(shown)
    assert axes.get_title().startswith("32 of 300 classes")
    counts = {(t.get_position(), t.get_text()) for t in axes.texts}
    assert ((shown.index("n77"), shown.index("n20")), "2") in counts
    assert ((shown.index("n77"), shown.index("n21")), "1") in counts


@pytest.mark.parametrize("classes", [10, 20, 32, 300])
def test_confusion_picture_has_room_for_long_names(monkeypatch, classes):
    figures = []
    monkeypatch.setattr(pictures_of_run, "to_png", lambda f: figures.append(f) or b"")
    labels = np.arange(4 * classes) % classes
    names = [f"B-depart_date.{n:03}" for n in range(classes)]
    draw_confusion(Evaluation(np.roll(labels, 1), labels, Counters(), 1.0), names)
    figure = figures[0]
    figure.draw_without_rendering()
    (axes,) = figure.axes
    rows = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert all(below.y1 <= above.y0 + 1 for above, below in pairwise(rows))
    # Slanted names begin below each other: their pitch counts, not their boxes.
    columns = [text.get_window_extent() for text in axes.get_xticklabels()]
    pitch = columns[1].x1 - columns[0].x1
    assert pitch >= rows[0].height
    title = axes.title.get_window_extent()
    assert title.x0 >= 0 and title.x1 <= figure.bbox.x1


def test_table_of_few_rows_with_numbers_that_hardly_repeat_is_a_regression(tmp_path):
    prices = table(tmp_path / "p.csv", [(str(n % 7), str(n * 37)) for n in range(170)], "x,y")
    assert load(prices).scale is not None
    assert load(prices, task="classification").classes == 170
    grades = table(tmp_path / "g.csv", [(str(n % 7), str(n % 17)) for n in range(60)], "x,y")
    assert load(grades).classes == 17
    few = table(tmp_path / "f.csv", [(str(n % 7), str(n % 16)) for n in range(20)], "x,y")
    assert load(few).classes == 16


def test_table_of_texts_does_not_propose_a_regression(tmp_path):
    rows = [(str(n % 7), f"k{n % 3}") for n in range(30)]
    assert "regression" not in " ".join(load(table(tmp_path / "t.csv", rows, "x,y")).notes)
    rows = [(str(n % 7), f"{n % 3}") for n in range(30)]
    assert "--task regression" in " ".join(load(table(tmp_path / "n.csv", rows, "x,y")).notes)


def test_text_without_labels_is_classified_and_not_learnt(tmp_path):
    path = tmp_path / "l.txt"
    path.write_text("".join(f"{'ab'[n % 2]}\tword{n % 3} more\n" for n in range(20)))
    preparation = load_data_set("table", path).preparation
    assert preparation is not None
    bare = tmp_path / "bare.txt"
    bare.write_text("word1 more\n\nword2 more\n")
    samples = load_samples(bare, preparation)
    assert samples.labels is None and len(samples.images) == 2
    labelled = load_samples(path, preparation).images
    assert (samples.images == labelled[[1, 2]]).all()
    with pytest.raises(DataError, match="line 1: 'word1 more' is not a label, a tab and a text"):
        load_data_set("table", bare)
    bare.write_text("a\tword1 more\nword2 more\n")
    with pytest.raises(DataError, match="line 2: 'word2 more' is not a label"):
        load_samples(bare, preparation)


def test_errors_of_eval_name_remedies_that_eval_has(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for n in range(10):
        folder = tmp_path / "p" / "ab"[n % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image.new("L", (4, 4), n * 20).save(folder / f"{n}.png")
    preparation = load_data_set("pictures", tmp_path / "p").preparation
    assert preparation is not None
    image.new("L", (5, 4)).save(tmp_path / "p" / "a" / "odd.png")
    for path in (tmp_path / "p", tmp_path / "p" / "a" / "odd.png"):
        with pytest.raises(DataError, match="resize them, or train with --image-size"):
            load_samples(path, preparation)
    with pytest.raises(DataError, match="was trained on a folder of pictures, "):
        load_samples(table(tmp_path / "t.csv", [("1", "2")], "a,b"), preparation)


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("$x$", r"\$x\$"), (r"$\foo{$", r"\$\foo{\$"), ("_hidden", " _hidden"),
        ("日本", r"\u65e5\u672c"), ("été", "été"), ("a\n b", "a b"),
        ("x" * 300, "x" * 23 + "…"),
    ],
)  # fmt: skip
def test_names_in_pictures_are_short_and_no_formulas(name, drawn, recwarn):
    assert label(name) == drawn
    figure = new_figure(2, 2)
    axes = figure.subplots()
    axes.plot([1, 2], label=label(name))
    axes.set(title=label(name), xlabel=literal(name[:30]))
    axes.legend()
    to_png(figure)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [drawn]
    assert not recwarn.list


@pytest.mark.parametrize(
    ("written", "remedy"),
    [("2024-01-{:02}", "write dates as"), ("{}/3/24 12:00", "write dates as"), ("{} kg", "1234.5")],
)
def test_column_of_dates_is_told_how_to_be_numbers(tmp_path, written, remedy):
    few = [(written.format(n % 20 + 1), str(n % 2)) for n in range(60)]
    (note,) = [n for n in load(table(tmp_path / "t.csv", few, "x,y")).notes if "is taken for" in n]
    assert remedy in note
    many = [(written.format(n + 1), str(n % 2)) for n in range(200)]
    with pytest.raises(DataError, match="a category has at most 64") as caught:
        load(table(tmp_path / "u.csv", many, "x,y"))
    assert remedy in str(caught.value)
