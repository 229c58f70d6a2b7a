"""The draft's experiments and the ones it announces; ``ttforge reproduce qr`` runs them."""
