"""``trainwright bench simulation``."""

import argparse
import json

import pytest

from trainwright_sim.speed import FAST, REFERENCE, command


@pytest.mark.slow
def test_simulation_engines_agree_and_leaves_is_faster(capsys, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)  # the speed is that of the compiler of users
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = ["--network", "digits", "--rounds", "5", "--json"]
    assert command.run(parser.parse_args(arguments)) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["same"] is True
    rates = {name: engine["cycles_per_second"] for name, engine in figures["engines"].items()}
    assert figures["ratio"] == rates[FAST] / rates[REFERENCE]
    assert figures["ratio"] > 1.5
