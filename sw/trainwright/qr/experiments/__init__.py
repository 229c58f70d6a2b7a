"""Experiments of the draft, and those that it announces; ``trainwright reproduce qr`` runs them."""
