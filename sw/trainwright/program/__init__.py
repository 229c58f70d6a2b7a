"""Programs: descriptors, their binary encoding and their listing."""
