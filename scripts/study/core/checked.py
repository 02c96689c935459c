"""Read YAML and JSON files and check them by a schema; errors name file, line, key and the nearest valid key."""

import contextlib
import difflib
import functools
import hashlib
import marshal
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jsonschema.exceptions import ValidationError

from study.core import core_schema
from study.core.errors import StudyError
from study.core.file_kinds import kind_of
from study.core.files import read_json
from study.core.paths import CONFIG, ROOT, within
from study.core.wording import LONGEST_VALUE, hide_secrets, one_line

LARGEST = 1e300
SURELY_SHALLOW = 20_000  # characters: nested as deeply as these allow, the parser in C does not crash
MOST_VALUES = 1_000_000  # in a file, with those that its anchors stand for
NOT_READ = (ValueError, LookupError, AttributeError, TypeError, OverflowError)  # what PyYAML raises besides its own
MOST_KNOWN = 500  # files that are parsed once, and contents that are checked once, however often they are read
EXPECTED = "x-expected"  # in a schema: what a message says was expected, such as "a name of letters, digits and _"


def _is_number(value: object) -> bool:
    """Whether a YAML value is a finite number that fits a float; not NaN, infinity or a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _pattern(_: Any, pattern: str, value: object, __: Any) -> Iterator[ValidationError]:
    """The keyword of JSON Schema, where ``$`` is the end of the text. Python's also stands before a last line break."""
    if isinstance(value, str) and (not re.search(pattern, value) or ("$" in pattern and value.endswith("\n"))):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


# JSON Schema accepts 2.0 as an integer; run names and Python do not.
VALIDATOR = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": _pattern},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and _is_number(value)
    ).redefine("number", lambda _, value: _is_number(value)),
)


@functools.cache
def named_schema(name: str) -> dict[str, Any]:
    """The JSON Schema ``config/schemas/<name>.schema.yaml`` as a dict."""
    return read(CONFIG / "schemas" / f"{name}.schema.yaml")[0]


def load(path: str | Path, schema: str | dict[str, Any]) -> dict[str, Any]:
    """Read one YAML file and check it against a schema: its name in config/schemas, or the schema itself.

    Returns the content as a dict. Raises `StudyError` for a missing file, invalid YAML, a duplicate key, a value that
    YAML 1.1 and 1.2 read differently, an unknown key, or a value that violates the schema.
    """
    content, tree = read(Path(path))
    check(content, schema, shown(path), tree)
    return content


def load_json(path: str | Path, schema: str | dict[str, Any]) -> Any:
    """Read one JSON file and check it against a schema, as `load` does for YAML."""
    content = read_json(path)
    check(content, schema, str(path))
    return content


def load_yaml(path: str | Path) -> Any:
    """The content of one YAML file; raises `StudyError` as `load`, but for a schema."""
    return read(Path(path))[0]


def read(path: Path) -> tuple[Any, yaml.Node | None]:
    """The content of a YAML file, and its node tree. Raises `StudyError` as `load`, but for a schema."""
    try:
        text = path.read_text(encoding="utf-8")
        tree, content = _parsed(text, path)
    except OSError as error:
        raise StudyError(f"{shown(path)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        kind, line = kind_of(path), error.object[: error.start].count(b"\n") + 1
        what = f"{kind.name}; {kind.remedy}" if kind else f"not text in UTF-8, see line {line}; save it as UTF-8"
        raise StudyError(f"{shown(path)}: is {what}") from None
    except (yaml.YAMLError, *NOT_READ) as error:  # ValueError also for text that is not UTF-8
        raise StudyError(f"{shown(path)}: {_parser_words(error)}") from None
    except RecursionError:
        raise StudyError(f"{shown(path)}: not valid YAML: it is nested too deeply, or refers to itself") from None
    if content is None:
        raise StudyError(f"{shown(path)}: the file is empty")
    return content, tree


def value(text: str, where: str) -> Any:
    """The value of one scalar that was typed, read as in a YAML file. where: name of the source in a message."""
    mark = " " if text.startswith(("...", "---")) else ""  # at the begin of a line they mark a document's end or begin
    loader = core_schema.Loader(mark + text)
    try:
        node = loader.get_single_node()
        why = core_schema.fault(node) if isinstance(node, yaml.ScalarNode) else "expected one value"
        if not why:
            return loader.construct_document(node)
    except (yaml.YAMLError, *NOT_READ) as error:
        why = _parser_words(error)
    finally:
        loader.dispose()
    raise StudyError(f"{where}: {why}")


def _parser_words(error: Exception) -> str:
    """One line: where the parser stopped, what it found, and in what."""
    problem = getattr(error, "problem", None)
    if problem is None:
        words = str(error).replace('in "<unicode string>", position', "at position")
        return f"not valid YAML: {one_line(words)}"
    mark, begin, context = (getattr(error, name, None) for name in ("problem_mark", "context_mark", "context"))
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    began = f" that begins on line {begin.line + 1}" if begin else ""
    return f"{place}not valid YAML: {one_line(problem)}" + (f" ({one_line(context)}{began})" if context else "")


_trees: dict[str, tuple[yaml.Node | None, bytes]] = {}  # {text: tree, marshalled content}
_valid: dict[bytes, None] = {}  # digests of schema and content


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Add to what is known; the oldest is forgotten."""
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = value


def _parsed(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """The node tree and the content of a text; it is parsed once, and each caller gets a content of its own."""
    if text in _trees:
        tree, packed = _trees[text]
        return tree, marshal.loads(packed)  # noqa: S302  packed here
    tree, content = _newly_parsed(text, path)
    with contextlib.suppress(ValueError):  # nested more deeply than it can be packed
        _keep(_trees, text, (tree, marshal.dumps(content)))
    return tree, content


def _newly_parsed(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """The node tree and the content: parsed in C, which is ten times faster, but which deep nesting crashes.

    What is wrong is told by PyYAML's own parser.
    """
    if len(text) <= SURELY_SHALLOW:
        with contextlib.suppress(yaml.YAMLError, RecursionError, *NOT_READ):
            return _parsed_by(core_schema.FastLoader, text, path)
    return _parsed_by(core_schema.Loader, text, path)


def _parsed_by(kind: Any, text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        if _size(tree, {}) > MOST_VALUES:
            why = f"its anchors refer to themselves, or stand for more than {MOST_VALUES} values"
            raise StudyError(f"{shown(path)}: {why}; write the values out")
        _refuse_unclear(tree, path, (), set())
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def check(content: Any, schema: str | dict[str, Any], where: str, tree: yaml.Node | None = None) -> None:
    """Raise `StudyError` for the first violation of the schema in ``content``.

    schema: its name in config/schemas, or itself. where: name of the source in the message. tree: its YAML node, for
    line numbers.
    """
    declared = named_schema(schema) if isinstance(schema, str) else schema
    key = _digest(declared, content)
    if key in _valid:
        return
    validator = VALIDATOR(declared)
    errors = sorted(validator.iter_errors(content), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        error = _most_specific(errors[0])
        path = list(error.absolute_path)
        said = hide_secrets(_describe(error, path)) + _not_a_text(error, _node(tree, path))
        raise StudyError(f"{where}: {_line(tree, path, _key_at_fault(error))}{said}")
    if key:
        _keep(_valid, key, None)


def _digest(*contents: Any) -> bytes | None:
    """The same for equal contents of equal types; None for what is not of plain types."""
    try:
        return hashlib.sha256(b"".join(marshal.dumps(each, 2) for each in contents)).digest()
    except ValueError:
        return None


def as_written(value: Any) -> str:
    """A value as YAML has it, in a message."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown(path: str | Path) -> str:
    """``path`` as in messages: relative to the repository, or to the folder one works in, if it is inside."""
    inside = (within(path, folder) for folder in (ROOT, Path.cwd()))
    return str(next((each for each in inside if each is not None), path))


def nearest(word: Any, known: Iterable[str]) -> str:
    """``; did you mean ...?`` with the most similar of the words ``known``, or an empty string.

    Capitals, and dashes or blanks in the place of ``_``, make no difference.
    """
    by_plain = {plain(each): each for each in reversed(list(known))}
    matches = difflib.get_close_matches(plain(str(word)), list(by_plain), n=1)
    return f"; did you mean '{by_plain[matches[0]]}'?" if matches else ""


def plain(word: str) -> str:
    """``word`` as names are compared for `nearest`."""
    return re.sub(r"[-\s]+", "_", word.strip().casefold())


def _most_specific(error: ValidationError) -> ValidationError:
    """Among the causes of an anyOf/oneOf error, the one that reached deepest into the content.

    The error itself if the value has the type of no branch, and the schema says what is expected.
    """
    while error.context:
        cause = max(error.context, key=_specificity)
        if EXPECTED in error.schema and cause.validator == "type" and cause.absolute_path == error.absolute_path:
            break
        error = cause
    return error


def _specificity(cause: ValidationError) -> tuple[int, bool]:
    """A branch that failed deeper, or for another reason than its type, is more likely to be the intended one."""
    return len(cause.absolute_path), cause.validator not in ("const", "type")


def _describe(error: ValidationError, path: Sequence[str | int]) -> str:
    """One line: the key, what was found and what was expected."""
    key = _dotted(path) or "the file"
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = _key_at_fault(error)
        place = _dotted([*path, unknown])
        return f"{place}: unknown key{nearest(unknown, known)}; known keys: {', '.join(known)}"
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f"{key}: the key '{missing}' is missing"
    if error.validator == "dependentRequired":
        given = _key_at_fault(error)
        missing = next(name for name in error.validator_value[given] if name not in error.instance)
        why = f"the key '{given}' needs the key '{missing}' too; add {missing}, or leave {given} out"
        return f"{_dotted([*path, given])}: {why}"
    if error.validator == "enum":
        known = [as_written(value) for value in error.validator_value]
        meant = nearest(str(error.instance)[:LONGEST_VALUE], known)
        return f"{key}: {one_line(repr(error.instance))} is not one of {', '.join(known)}{meant}"
    if error.validator == "uniqueItems":
        return f"{key}: {one_line(str(error.instance))} has a value twice"
    hint = error.schema.get("description")
    if expected := error.schema.get(EXPECTED, hint if error.validator == "pattern" else None):
        return f"{key}: {one_line(repr(error.instance))}: expected {expected}"
    return f"{key}: {_explained(error)}" + (f" ({hint})" if hint else "")


def _not_a_text(error: ValidationError, node: yaml.Node | None) -> str:
    """The remedy for a number, boolean or empty value in the place of a text. node: its node, None if unknown."""
    expects_text = error.schema.get("type") == "string" or (
        error.validator == "enum" and all(isinstance(value, str) for value in error.validator_value)
    )
    if not expects_text or not isinstance(error.instance, bool | int | float | None):
        return ""
    written = node.value if isinstance(node, yaml.ScalarNode) else ""
    as_text = f": '{core_schema.short(written)}'" if written else ""
    return f"; for a text, put it in quotes{as_text}"


def _explained(error: ValidationError) -> str:
    """What was found and what was expected, where the library's own words need explaining."""
    if error.validator == "not" and error.validator_value == {}:
        return "does not belong here"
    if error.validator == "type" and error.validator_value in ("number", "integer") and _is_numeral(error.instance):
        return f"{error.instance!r} is a text; write a number such as 0.001 or 1.0e-3, without quotes"
    if error.validator == "type" and error.validator_value == "boolean":
        return f"{one_line(repr(error.instance))}: expected true or false"
    return one_line(error.message)


def _is_numeral(text: object) -> bool:
    try:
        return isinstance(text, str) and math.isfinite(float(text))
    except ValueError:
        return False


def _key_at_fault(error: ValidationError) -> Any:
    """The key of a mapping that is unknown, or that needs one that is missing; None for other errors."""
    if error.validator == "additionalProperties":
        return next(name for name in error.instance if name not in error.schema.get("properties", {}))
    if error.validator == "dependentRequired":
        needs = error.validator_value
        return next(key for key in needs if key in error.instance and not set(needs[key]) <= set(error.instance))
    return None


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _line(tree: yaml.Node | None, path: Sequence[str | int], key: Any) -> str:
    """``line N: `` of the deepest node on ``path`` that is in the YAML, or an empty string without a tree.

    key: a key of the mapping there, whose line is meant; None for the mapping's.
    """
    node = tree
    for part in path:
        child = _child(node, part)
        if child is None:
            break
        node = child
    else:
        if key is not None and isinstance(node, yaml.MappingNode):
            node = next((name for name, _ in node.value if name.value == str(key)), node)
    return f"line {node.start_mark.line + 1}: " if node is not None else ""


def _node(tree: yaml.Node | None, path: Sequence[str | int]) -> yaml.Node | None:
    """The node at ``path``, or None."""
    for part in path:
        tree = _child(tree, part)
    return tree


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def _size(node: yaml.Node | None, known: dict[int, int]) -> int:
    """The number of values in a node, where an alias counts as all that it stands for. known: sizes of nodes."""
    if not isinstance(node, yaml.MappingNode | yaml.SequenceNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # if it refers to itself
        pairs = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_size(each, known) for each in pairs)
    return known[id(node)]


def _refuse_unclear(node: yaml.Node | None, path: Path, place: tuple[str | int, ...], done: set[int]) -> None:
    """Refuse duplicate keys, of which YAML itself takes the last, and what YAML 1.1 and 1.2 read differently.

    place: of the node, from the top. done: nodes behind us.
    """
    if node is None or id(node) in done:
        return
    done.add(id(node))
    if why := core_schema.fault(node):
        raise StudyError(
            f"{shown(path)}: line {node.start_mark.line + 1}: {f'{_dotted(place)}: ' if place else ''}{why}"
        )
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if why := _fault_as_key(key, seen):
                raise StudyError(f"{shown(path)}: line {key.start_mark.line + 1}: {why}")
            seen.add(key.value)
            _refuse_unclear(value, path, (*place, key.value), done)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _refuse_unclear(item, path, (*place, index), done)


def _fault_as_key(key: yaml.Node, seen: set[str]) -> str | None:
    """Why a node cannot be a key, or None. seen: the mapping's keys before it."""
    if not isinstance(key, yaml.ScalarNode):
        return "a key must be a plain name"
    if not key.style and (found := core_schema.MISPLACED.search(key.value)):
        return core_schema.invisible(found[0], key.value)
    if key.tag not in (core_schema.TEXT, core_schema.MERGE):
        return f"the key {core_schema.short(key.value)} is not a text; put it in quotes"
    if key.value in seen:
        return f"the key '{core_schema.short(key.value)}' is given twice"
    return None
