# cython: language_level=3, freethreading_compatible=True
"""Owns: pools over virtual memory, the block cache of attention states, and the budgets that processes and tenants share."""
include "pool/virtual_memory_pool.pxi"
include "pool/block_cache.pxi"
include "pool/block_tables.pxi"
include "pool/elastic.pxi"
include "pool/claims.pxi"
include "pool/shared_budget.pxi"
include "pool/tenant_budgets.pxi"
