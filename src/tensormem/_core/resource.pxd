# Owns: the C shape of the module `resource`, for the other modules of this package.
include "resource/resources.pxd"
include "resource/budgets.pxd"
