"""Texts and documents that people hand in, as snapshots."""
