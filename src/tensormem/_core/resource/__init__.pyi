from tensormem._core.resource.adaptors import *
from tensormem._core.resource.budgets import *
from tensormem._core.resource.leaves import *
from tensormem._core.resource.plans import *
from tensormem._core.resource.resources import *
from tensormem._core.resource.suballocators import *
