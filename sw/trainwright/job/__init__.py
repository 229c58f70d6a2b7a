"""Training jobs as files: what a host writes and starts, for a driver in any language.

``record`` records what the host of a training run writes and starts; ``files`` writes the record as
JSON, as a C header and as contents of memory; ``driver`` is a reference driver in C99.
"""
