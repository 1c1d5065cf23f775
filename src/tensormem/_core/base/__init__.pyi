from tensormem._core.base.drivers import *
from tensormem._core.base.explained_functions import *
from tensormem._core.base.faults import *
from tensormem._core.base.gpus import *
from tensormem._core.base.identities import *
from tensormem._core.base.shortages import *
from tensormem._core.base.signatures import *
from tensormem._core.base.streams import *
