from tensormem._core.pool.block_cache import *
from tensormem._core.pool.block_tables import *
from tensormem._core.pool.claims import *
from tensormem._core.pool.elastic import *
from tensormem._core.pool.shared_budget import *
from tensormem._core.pool.tenant_budgets import *
from tensormem._core.pool.virtual_memory_pool import *
