"""PyTorch: a workload's module, trained by this project's loop, with gradients averaged by torch.distributed (DDP)."""
