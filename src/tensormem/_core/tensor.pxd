# Owns: the C shape of the module `tensor`, for the other modules of this package.
include "tensor/endings.pxd"
include "tensor/accesses.pxd"
include "tensor/storages.pxd"
include "tensor/kinds.pxd"
include "tensor/tensors.pxd"
include "tensor/uses.pxd"
