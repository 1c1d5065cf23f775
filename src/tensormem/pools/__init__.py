"""Owns: elastic pools: addresses in plenty, memory where it is used, given back when it is not.

Must not know: tensors.
"""

from tensormem._core import Budget, PhysicalLimit, PoolBlock, TenantBudget
from tensormem.pools.block_cache import BlockCache
from tensormem.pools.block_cache_stats import BlockCacheStats
from tensormem.pools.block_tables import BlockTables
from tensormem.pools.block_tables_stats import BlockTablesStats
from tensormem.pools.compaction_report import CompactionReport
from tensormem.pools.defragmenter import Defragmenter
from tensormem.pools.memory_stats import MemoryStats
from tensormem.pools.shared_budget import Participant, SharedBudget
from tensormem.pools.tenant import Tenant, TenantStats
from tensormem.pools.tenant_pool import TenantPool, TenantPoolStats
from tensormem.pools.virtual_memory_pool import VirtualMemoryPool
from tensormem.public_functions import explain_misspellings

__all__ = [
    "BlockCache",
    "BlockCacheStats",
    "BlockTables",
    "BlockTablesStats",
    "Budget",
    "CompactionReport",
    "Defragmenter",
    "MemoryStats",
    "Participant",
    "PhysicalLimit",
    "PoolBlock",
    "SharedBudget",
    "Tenant",
    "TenantBudget",
    "TenantPool",
    "TenantPoolStats",
    "TenantStats",
    "VirtualMemoryPool",
]

explain_misspellings(globals())
