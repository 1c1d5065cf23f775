"""Owns: what tensormem ships for other people's tests: conformance suites to subclass, and planned faults.

Needs pytest. Must not be imported by anything but tests.
"""
