"""Owns: the live screens of `tensormem top`, of a process and of a cluster. Needs the extra `top` (textual).

Must not know: how answers come here.
"""

from tensormem.top.screen.app import Source, TopApp
from tensormem.top.screen.cluster_app import ClusterApp

__all__ = ["ClusterApp", "Source", "TopApp"]
