"""Wu et al., ICPP 2019: the CANDLE P1 benchmarks on Summit and Theta."""
