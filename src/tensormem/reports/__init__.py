"""Owns: turning what is known into something to read: about this machine now, about memory and its history later.

Must not know: terminals and command lines. A report is data; `tensormem.cli` draws it.
"""
