"""Board's side of the host link (``trainwright.link.protocol``)."""
