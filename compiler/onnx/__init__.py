"""Import and export of ONNX models."""
