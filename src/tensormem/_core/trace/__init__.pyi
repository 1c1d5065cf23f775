from tensormem._core.trace.observers import *
from tensormem._core.trace.pickles import *
from tensormem._core.trace.traces import *
