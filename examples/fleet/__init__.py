"""The parts of `many_nodes.py`: requests, their order in time, budgets, the simulation, costs, and the picture."""
