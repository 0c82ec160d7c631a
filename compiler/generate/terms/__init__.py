"""Terms over the operators of a generation, their types, and the tensors and attributes that they are made of."""
