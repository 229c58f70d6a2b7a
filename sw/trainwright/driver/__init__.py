"""The driver: training steps on any accelerator, from integers in to gradients out."""

from trainwright.driver.driver import RESETS, Driver, persist
from trainwright.driver.model import (
    BackwardOperands,
    BackwardResult,
    ForwardOperands,
    ForwardResult,
    HeadExponents,
    QuantisedModel,
)
from trainwright.driver.runner import (
    HeldActivations,
    Pass,
    Results,
    Runner,
    StepDriver,
    StepInputs,
)
from trainwright.driver.settling import Settling
from trainwright.fixed.quantise import fitting_exponent, quantise

__all__ = [
    "RESETS",
    "BackwardOperands",
    "BackwardResult",
    "Driver",
    "ForwardOperands",
    "ForwardResult",
    "HeadExponents",
    "HeldActivations",
    "Pass",
    "QuantisedModel",
    "Results",
    "Runner",
    "Settling",
    "StepDriver",
    "StepInputs",
    "fitting_exponent",
    "persist",
    "quantise",
]
