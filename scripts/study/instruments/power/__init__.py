"""Power and energy: one module a sensor, the sampler that reads them, and the energy of phases and runs."""
