"""Wu et al., PyHPC at SC18: NT3 on Theta."""
