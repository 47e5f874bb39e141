"""What a launch command and a job's variables say: pure functions of texts, nothing is looked at.

Probes read a live command with them, rules a described one.
"""
