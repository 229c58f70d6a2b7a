"""The board's side of the host link (``ttforge.link.protocol``)."""
