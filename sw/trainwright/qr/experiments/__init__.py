"""The draft's experiments and the ones it announces; ``trainwright reproduce qr`` runs them."""
