# Owns: the C shape of the module `base`, for the other modules of this package.
include "base/sizes.pxd"
include "base/shortages.pxd"
include "base/drivers.pxd"
include "base/streams.pxd"
