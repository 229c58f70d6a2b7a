"""Training jobs as files: what a host writes and starts, for a driver in any language.

``record`` notes what a training run does to its accelerator; ``files`` writes it as JSON, as a C
header and as contents of memory; ``driver`` is a reference driver in C99.
"""
