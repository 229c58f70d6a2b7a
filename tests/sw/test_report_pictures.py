"""Pictures of a run: what their legends say."""

from types import SimpleNamespace

import pytest

from trainwright.network import UserNames, load_network
from trainwright.report import page, pictures
from trainwright.train.history import History, ScaleRecord


@pytest.mark.parametrize(("steps", "label"), [(1, "1 batch"), (7, "7 batches"), (50, "20 batches")])
def test_loss_picture_of_few_steps_names_the_batches_of_its_mean(monkeypatch, steps, label):
    monkeypatch.setattr(pictures, "to_png", lambda figure: figure)
    records = [SimpleNamespace(step=n, loss=1.0 / n) for n in range(1, steps + 1)]
    (axes,) = pictures.draw_loss(History(steps=records)).axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["batch", f"mean of {label}"]


@pytest.mark.parametrize(
    ("counts", "labels", "drawn"),
    [
        ([22, 22, 20], ["mean of 22 batches"], [3.0, 2.0, 1.0]),
        # The last 20 steps of the third record begin inside of the first, which is left out.
        ([8, 8, 8], ["mean of 8 batches", "mean of 20 batches"], [3.0, 2.5, 1.5]),
        ([4, 12, 8], ["mean of 12 batches", "mean of 20 batches"], [3.0, 2.25, 1.6]),
        ([3, 13, 8], ["mean of 13 batches", "mean of 20 batches"], [3.0, 35 / 16, 1.0]),
    ],
)
def test_loss_picture_of_records_with_several_steps_averages_steps(
    monkeypatch, counts, labels, drawn
):
    monkeypatch.setattr(pictures, "to_png", lambda figure: figure)
    records = [SimpleNamespace(step=sum(counts[: n + 1]), loss=3.0 - n) for n in range(len(counts))]
    (axes,) = pictures.draw_loss(History(steps=records)).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == labels
    assert axes.lines[-1].get_ydata().tolist() == pytest.approx(drawn, rel=1e-12)


def test_ranks_and_scales_are_drawn_with_the_names_of_the_users_layers(monkeypatch):
    monkeypatch.setattr(pictures, "to_png", lambda figure: figure)
    network = load_network("intent-64")
    ranks = [rank for layer in network.ranks for rank in layer]
    steps = [SimpleNamespace(step=step, ranks=ranks) for step in (1, 2)]
    (axes,) = pictures.draw_ranks(History(steps=steps), network).axes
    drawn = [text.get_text() for text in axes.get_legend().get_texts()]
    assert drawn[:4] == ["words, bond 1", "words, bond 2", "places, bond 1", "query, bond 1"]
    names = UserNames.of_network(network)
    records = [ScaleRecord(step, "l3.dG2", -5, 0.1, 0.25) for step in (1, 2)]
    figure = pictures.draw_scales(records, names=names)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["query dG2"]


def test_page_lists_layers_by_name_and_counts_a_scale_as_one_value_a_lane():
    network = load_network("intent-64")
    rows = {row[0]: row[1:] for row in page._layers(network, network)}
    assert rows["words"] == (
        "10 x 10 x 10 = 1,000", "4 x 4 x 4 = 64", "16, 16 → 16, 16", "11,520", "64,000"
    )  # fmt: skip
    (scale,) = {row for row in rows.values() if row[-1] == "64"}
    assert scale == ("64", "64", "-", "64", "64")
    digits = load_network("digits")
    assert [row[0] for row in page._layers(digits, digits)] == ["1", "2"]


def test_scales_legend_covers_no_curve_and_no_label(monkeypatch):
    figures = []
    monkeypatch.setattr(pictures, "to_png", lambda figure: figures.append(figure) or b"")
    records = [
        ScaleRecord(step, f"tensor {n}", -n, 0.1, 0.001 * n) for step in range(40) for n in range(8)
    ]
    pictures.draw_scales(records)
    figure = figures[0]
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        assert not axes.get_legend()
        assert not legend.overlaps(axes.get_tightbbox())


def test_scales_of_a_run_without_saturation_begin_at_a_share_of_0(monkeypatch):
    figures = []
    monkeypatch.setattr(pictures, "to_png", lambda figure: figures.append(figure) or b"")
    pictures.draw_scales([ScaleRecord(step, "tensor", -5, 0.1, 0.0) for step in range(1, 9)])
    _, shares = figures[0].axes
    assert shares.get_ylim()[0] == 0 < shares.get_ylim()[1]


@pytest.mark.parametrize(("count", "marker"), [(1, "."), (2, "")])
def test_curves_of_one_record_show_its_point(monkeypatch, count, marker):
    """A run of one start on the accelerator has one record: a line of one point is invisible."""
    monkeypatch.setattr(pictures, "to_png", lambda figure: figure)
    records = [SimpleNamespace(step=60 + n, ranks=[4, 4]) for n in range(count)]
    history = SimpleNamespace(steps=records, cycles_a_step=[9000] * count)
    scales = [ScaleRecord(60 + n, "tensor", -5, 0.1, 0.0) for n in range(count)]
    figures = (
        pictures.draw_ranks(history, load_network("digits")),
        pictures.draw_cycles(history),
        pictures.draw_scales(scales),
    )
    lines = [line for figure in figures for axes in figure.axes for line in axes.lines]
    assert len(lines) == 5 and {line.get_marker() for line in lines} == {marker}
