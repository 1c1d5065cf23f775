"""Frames of other people's devices in memory of ours: a Video4Linux camera, a GStreamer pipeline."""
