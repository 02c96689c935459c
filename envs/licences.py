"""Print every locked package with its version and the licence that it states, as a Markdown table (make licences)."""

import importlib.metadata
import re
from pathlib import Path

PIN = re.compile(r"^([\w.-]+)==([\w.+-]+)", re.M)


def read_licence(package: str) -> str:
    """Read the licence of an installed package from its metadata."""
    try:
        facts = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"
    classes = [each.split(" :: ")[-1] for each in facts.get_all("Classifier", []) if each.startswith("License ::")]
    texts = [facts.get("License-Expression"), "; ".join(classes), facts.get("License")]
    return next((text.strip().splitlines()[0] for text in texts if text and text.strip()), "not stated")


if __name__ == "__main__":
    locks = sorted(Path(__file__).parent.glob("*.lock"))
    pins = {pin: lock.stem for lock in reversed(locks) for pin in PIN.findall(lock.read_text())}
    print("| package | version | licence | lock |\n|---|---|---|---|")
    for (package, version), lock in sorted(pins.items()):
        print(f"| {package} | {version} | {read_licence(package)} | {lock} |")
