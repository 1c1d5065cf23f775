"""Owns: the command `tensormem`, one file per verb. Needs the extra `cli` (click and rich).

A command parses flags, calls a report, and draws it. Must not know: how anything is found out.
"""
