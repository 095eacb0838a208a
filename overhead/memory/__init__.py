"""Memory of a GPU in training, by part: parameters, states, activations, logits, buffers."""
