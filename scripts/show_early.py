"""Starts `study.commands.steps.show_early`."""

from study.commands.steps import show_early

if __name__ == "__main__":
    show_early.start()
