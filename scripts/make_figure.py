"""Starts `study.commands.steps.make_figure`."""

from study.commands.steps import make_figure

if __name__ == "__main__":
    make_figure.start()
