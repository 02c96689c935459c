"""Power and energy: one module per sensor, the sampler that reads them, and the energy of phases and runs."""
