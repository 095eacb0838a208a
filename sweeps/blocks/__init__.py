"""Long sweeps: cut into blocks, which are files, that any process computes and any run goes on."""
