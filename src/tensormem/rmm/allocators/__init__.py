"""Owns: the current resource as other libraries' allocator, by RMM's names; one module per library.

A module is imported by its user: its library is loaded when it is first used. Must not know: tensors.
"""
