from tensormem._core.interop.allocators import *
from tensormem._core.interop.dlpack import *
