"""Probes: each looks at one subject and returns facts. They never judge and never raise."""
