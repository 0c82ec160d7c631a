"""Candidates: graphs that a search found, the steps to them, and how they are written as ONNX models."""
