"""Owns: what there is to say about a trace: a summary, the tree of resources, what two differ in; and other formats.

Must not know: screens and command lines.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.traces.difference import Change, TraceDifference, compare
from tensormem.reports.traces.summary import TraceSummary, summarize
from tensormem.reports.traces.tree import TreeNode, tree_of

__all__ = ["Change", "TraceDifference", "TraceSummary", "TreeNode", "compare", "summarize", "tree_of"]

explain_misspellings(globals())
