"""Every device passes the one suite of elastic pools."""

from tensormem.testing.pools import PoolConformance


class TestHostPool(PoolConformance):
    device = "host"
