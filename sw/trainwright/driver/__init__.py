"""The driver: training steps on any accelerator, from integers in to gradients out."""

from trainwright.driver.driver import RESETS, Driver, persist
from trainwright.driver.model import (
    BackwardResult,
    ForwardResult,
    HeadExponents,
    QuantisedModel,
)
from trainwright.driver.runner import (
    HeldActivations,
    Pass,
    Results,
    Runner,
    RunnerDriver,
    StepInputs,
    Steps,
)
from trainwright.driver.settling import Settling, settle
from trainwright.fixed.quantise import fitting_exponent, quantise

__all__ = [
    "RESETS",
    "BackwardResult",
    "Driver",
    "ForwardResult",
    "HeadExponents",
    "HeldActivations",
    "Pass",
    "QuantisedModel",
    "Results",
    "Runner",
    "RunnerDriver",
    "Settling",
    "StepInputs",
    "Steps",
    "fitting_exponent",
    "persist",
    "quantise",
    "settle",
]
