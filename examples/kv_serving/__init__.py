"""Owns: the parts of `kv_cache.py`: the trace, three ways to keep the caches, the serving loop, the picture."""
