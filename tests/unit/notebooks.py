"""Runs a notebook's code in this process, without Jupyter. As papermill does, it puts values after one cell."""

import json


def cells(path):
    """The notebook's cells of code."""
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def run(path, **values):
    """The notebook's variables after its last cell. values: in place of those of the cell tagged ``parameters``."""
    variables = {"__name__": "__main__"}
    for cell in cells(path):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {cell['id']}", "exec"), variables)
        if "parameters" in cell["metadata"].get("tags", ()):
            variables |= values
    return variables
