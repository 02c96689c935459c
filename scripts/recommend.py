"""Starts `study.commands.analysis.recommend`."""

from study.commands.analysis import recommend

if __name__ == "__main__":
    recommend.start()
