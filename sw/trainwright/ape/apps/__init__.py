"""The paper's applications, small and real (section 7.2): plain torch code.

Nothing here knows of APE: ``with ape.enabled():`` around a call is all there is to it.
"""
