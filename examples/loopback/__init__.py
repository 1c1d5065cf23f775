"""Clusters for the examples: small, on this machine only, and stopped afterwards."""
