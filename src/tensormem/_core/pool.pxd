# Owns: the C shape of the module `pool`, for the other modules of this package.
include "pool/virtual_memory_pool.pxd"
include "pool/claims.pxd"
