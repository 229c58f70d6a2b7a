"""Choices of a training run, by name: options list them without importing torch."""

SCHEDULES = ("cosine", "constant")
SCALES = ("automatic", "frozen", "all-frozen")
FACTOR_SCALES = ("fixed", "automatic", "blocks")
CUT_PROGRAMS = ("kept", "fitted")
PRIOR_FORMS = ("storage", "paper")
MASTER_WEIGHTS = ("float32", "float16x2", "float16")
MOMENTS = ("float32", "8bit", "factored")
SPREAD = 2.5
"""Standard deviation of fresh factors in quantisation steps at 4 bits; doubles with each bit."""
