"""Starts `study.commands.datasets.convert_images`."""

from study.commands.datasets import convert_images

if __name__ == "__main__":
    convert_images.start()
