"""The paper's applications, small and real (section 7.2), in plain torch code.

Nothing here refers to APE: ``with ape.enabled():`` around a call suffices.
"""
