from tensormem._core.share.frame_ring import *
from tensormem._core.share.shared_memory import *
from tensormem._core.share.tensor_messages import *
from tensormem._core.share.waits import *
