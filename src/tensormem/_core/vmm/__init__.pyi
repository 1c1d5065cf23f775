from tensormem._core.vmm.growable_buffer import *
from tensormem._core.vmm.virtual_memory import *
