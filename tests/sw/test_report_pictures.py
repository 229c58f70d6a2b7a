"""Pictures of a run: what their legends say."""

from types import SimpleNamespace

import pytest

from trainwright.report import pictures
from trainwright.train.history import History


@pytest.mark.parametrize(("steps", "label"), [(1, "1 batch"), (7, "7 batches"), (50, "20 batches")])
def test_loss_picture_of_few_steps_names_the_batches_of_its_mean(monkeypatch, steps, label):
    monkeypatch.setattr(pictures, "to_png", lambda figure: figure)
    records = [SimpleNamespace(step=n, loss=1.0 / n) for n in range(1, steps + 1)]
    (axes,) = pictures.draw_loss(History(steps=records)).axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["batch", f"mean of {label}"]
