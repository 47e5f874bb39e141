"""The rules: pure functions of (snapshot, matrix), one module a subject. See registry.py."""
