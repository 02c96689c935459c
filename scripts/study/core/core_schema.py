"""Read and write YAML by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema).

PyYAML reads plain scalars by YAML 1.1 (https://yaml.org/type/): 010 is 8, 1:30 is 90, 2024_11 is 202411, no is false,
and 2024-01-01 is a date. In YAML 1.2 the first is 10, and the others are texts. What both read differently is refused.
Numbers such as 1e-3, -.5 and 0o17, which are texts in YAML 1.1, are read as in 1.2: nobody means a text by them. Merge
keys (``<<``), which the core schema does not have, keep their meaning of YAML 1.1.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT, TEXT, MERGE = (TAG + kind for kind in ("null", "bool", "int", "float", "str", "merge"))
AMBIGUOUS = TAG + "ambiguous"
DIGITS, LINE_ENDS = "0123456789", "[\x85\u2028\u2029\ufeff]"
# Blanks that are none in YAML, and characters without a width; editors and web pages put them in the place of blanks.
INVISIBLE = "[\u00a0\u1680\u180e\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff]"
MISPLACED = re.compile(f"(?:^|(?<=[ :])){INVISIBLE}|{INVISIBLE}$")
# {tag: regular expression} of the plain scalars that are no texts.
CORE: Mapping[str, str] = {
    NULL: r"~|null|Null|NULL|",
    BOOL: r"true|True|TRUE|false|False|FALSE",
    INT: r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+",
    FLOAT: r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
# Other plain scalars that are a number, a boolean or a date in YAML 1.1; and 08, a text in YAML 1.1 and 8 in 1.2.
DIFFERENT = "|".join(
    [
        r"[-+]?0[0-9]+|[-+]?0[0-7]*_[0-7_]*|[-+]?[1-9][0-9]*_[0-9_]*|[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]+",
        r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?",
        r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*",
        r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
        r"([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?",
    ]
)
FIRST = {NULL: ["~", "n", "N", ""], BOOL: "tTfF", INT: "+-" + DIGITS, FLOAT: "+-." + DIGITS, MERGE: "<",
         AMBIGUOUS: "+-.yYnNoO" + DIGITS}  # fmt: skip

Resolvers = dict[str | None, list[tuple[str, re.Pattern[str]]]]


def _build_resolvers(declared: Mapping[str, str]) -> Resolvers:
    """PyYAML's table of resolvers, {first character: [(tag, pattern)]}; the first matching pattern counts."""
    resolvers: Resolvers = {}
    for tag, pattern in declared.items():
        for first in FIRST[tag]:
            resolvers.setdefault(first, []).append((tag, re.compile(rf"(?:{pattern})\Z")))
    return resolvers


RESOLVERS = _build_resolvers({**CORE, MERGE: "<<", AMBIGUOUS: DIFFERENT})


class _Values(yaml.constructor.SafeConstructor):
    """Constructs values by the core schema from nodes in which `find_fault` finds nothing."""

    def construct_core_value(self, node: yaml.ScalarNode) -> Any:
        """The value of a scalar that is not a text."""
        if node.tag == INT:
            return int(node.value, 0) if node.value[:2] in ("0o", "0x") else int(node.value)
        if node.tag == FLOAT:
            return _parse_float(node.value)
        return {"true": True, "false": False}.get(node.value.lower()) if node.tag == BOOL else None


for _tag in CORE:
    _Values.add_constructor(_tag, _Values.construct_core_value)
_Values.add_constructor(MERGE, yaml.constructor.SafeConstructor.construct_yaml_str)  # as a value


class Loader(_Values, yaml.SafeLoader):
    """Reads the core schema with PyYAML's own parser."""

    yaml_implicit_resolvers = RESOLVERS


class FastLoader(_Values, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads the core schema with the parser in C, ten times faster."""

    yaml_implicit_resolvers = RESOLVERS


class _Dumper(yaml.SafeDumper):
    """Quotes each text that YAML 1.1 or 1.2 reads as something else."""

    yaml_implicit_resolvers = {
        first: [*RESOLVERS.get(first, []), *yaml.SafeDumper.yaml_implicit_resolvers.get(first, [])]
        for first in {**RESOLVERS, **yaml.SafeDumper.yaml_implicit_resolvers}
    }


def dump_yaml(content: Any, **options: Any) -> str:
    """``content`` as YAML text that is read back unchanged; keys keep their order. options: of `yaml.dump`."""
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, **{"allow_unicode": True, **options})
    if re.search(LINE_ENDS, text):  # PyYAML writes them as they are, and reads a line end
        return yaml.dump(content, Dumper=_Dumper, sort_keys=False, **{**options, "allow_unicode": False})
    return text


def find_fault(node: yaml.Node) -> str | None:
    """Why a single node cannot be read, with the remedy; None if it can. Nodes inside it are not checked."""
    if not isinstance(node, yaml.ScalarNode):
        kind = "map" if isinstance(node, yaml.MappingNode) else "seq"
        return None if node.tag == TAG + kind else _refuse_tag(node.tag)
    if not node.style and (invisible := MISPLACED.search(node.value)):
        return explain_invisible(invisible[0], node.value)
    if node.tag in (TEXT, MERGE):
        return None
    if node.tag not in (*CORE, AMBIGUOUS):
        return _refuse_tag(node.tag)
    kinds = (INT, FLOAT) if node.tag == FLOAT else (node.tag,)  # !!float 1
    if not any(re.fullmatch(CORE.get(kind, "(?!)"), node.value) for kind in kinds):
        if re.fullmatch(DIFFERENT, node.value):
            return _explain_two_readings(node.value)
        return (
            f"not valid YAML: '{shorten(node.value)}' does not fit its tag {_format_tag(node.tag)}; leave the tag out"
        )
    if node.tag == FLOAT and not _fits_float(node.value):
        return f"{shorten(node.value)} is too large or too small for a number of 64 bits"
    return None


def explain_invisible(character: str, text: str) -> str:
    """Message that refuses a scalar with an invisible character at its begin or end, or after a blank or colon."""
    visible_text = shorten(text.replace(character, f"<U+{ord(character):04X}>"))
    return (
        f"{visible_text} has an invisible character (U+{ord(character):04X}); write a blank, or put the text in quotes"
    )


def shorten(text: str) -> str:
    """The first 40 characters of a scalar."""
    return text if len(text) <= 40 else f"{text[:40]}..."


def _refuse_tag(tag: str) -> str:
    """Message that refuses a tag outside the core schema."""
    return f"not valid YAML: the tag {_format_tag(tag)} is not of YAML's core schema; leave it out"


def _format_tag(tag: str) -> str:
    """A tag as it is written in YAML, such as ``!!int``."""
    return f"!!{tag.removeprefix(TAG)}" if tag.startswith(TAG) else shorten(tag)


def _parse_float(text: str) -> float:
    """The number of a float scalar or an octal or hexadecimal integer."""
    return float(int(text, 0)) if text[:2] in ("0o", "0x") else float(re.sub(r"\.(?=[iInN])", "", text))


def _fits_float(text: str) -> bool:
    """True if a number is rounded neither to infinity nor to zero."""
    if re.search("[iInN]", text):  # .inf, .nan
        return True
    try:
        value = _parse_float(text)
    except OverflowError:
        return False
    return math.isfinite(value) and (value != 0 or not re.search("[1-9]", re.split("[eE]", text)[0]))


def _explain_two_readings(text: str) -> str:
    """Message with what a scalar means in YAML 1.1 and in 1.2, and how to write either."""
    short_text, quoted = shorten(text), f"'{shorten(text)}'"
    try:
        of_1_1 = yaml.SafeLoader(text).get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError):
        of_1_1 = text
    of_1_2 = int(text) if re.fullmatch("[-+]?[0-9]{1,300}", text) else text
    readings, values = [], []
    for version, value in (("1.1", of_1_1), ("1.2", of_1_2)):
        if isinstance(value, bool | int | float):
            values.append(str(value).lower())
            readings.append(f"{values[-1]} in YAML {version}")
        else:
            readings.append(f"a {'text' if isinstance(value, str) else 'date'} in YAML {version}")
    choices = [*dict.fromkeys(reversed(values)), f"{quoted} in quotes for the text"]
    return f"{short_text} is {' and '.join(readings)}; write {' or '.join(choices)}"
