"""Measurements on posits."""
