# Owns: the C shape of the module `vmm`, for the other modules of this package.
include "vmm/virtual_memory.pxd"
