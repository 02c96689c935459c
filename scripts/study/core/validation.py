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
from study.core.file_kinds import recognize_file
from study.core.files import LARGEST, read_json
from study.core.paths import CONFIG, ROOT, find_relative_path
from study.core.wording import LONGEST_VALUE, hide_secrets, to_one_line

SURELY_SHALLOW = 20_000  # levels of nesting that do not crash the parser in C
MOST_VALUES = 1_000_000  # in a file, with those that its anchors stand for
NOT_READ = (ValueError, LookupError, AttributeError, TypeError, OverflowError)  # what PyYAML raises besides its own
MOST_KNOWN = 500  # files that are parsed once, and contents that are checked once, however often they are read
EXPECTED = "x-expected"  # in a schema: what a message says was expected, such as "a name of letters, digits and _"


def _is_number(value: object) -> bool:
    """True if a YAML value is a finite number that fits a float; False for NaN, infinity and booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _check_pattern(_: Any, pattern: str, value: object, __: Any) -> Iterator[ValidationError]:
    """JSON Schema's keyword ``pattern``, where ``$`` is the end of the text; Python's also stands before a line end."""
    if isinstance(value, str) and (not re.search(pattern, value) or ("$" in pattern and value.endswith("\n"))):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


# JSON Schema accepts 2.0 as an integer; run names and Python do not.
VALIDATOR = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": _check_pattern},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and _is_number(value)
    ).redefine("number", lambda _, value: _is_number(value)),
)


@functools.cache
def read_schema(name: str) -> dict[str, Any]:
    """The JSON Schema in ``config/schemas/<name>.schema.yaml``."""
    return read_yaml_with_tree(CONFIG / "schemas" / f"{name}.schema.yaml")[0]


def load_valid_yaml(path: str | Path, schema: str | dict[str, Any]) -> dict[str, Any]:
    """The content of a YAML file, validated. schema: its name in config/schemas, or the schema itself.

    Returns the content as a dict. Raises `StudyError` for a missing file, invalid YAML, a duplicate key, a value that
    YAML 1.1 and 1.2 read differently, an unknown key, or a value that violates the schema.
    """
    content, tree = read_yaml_with_tree(Path(path))
    validate(content, schema, shorten_path(path), tree)
    return content


def load_valid_json(path: str | Path, schema: str | dict[str, Any]) -> Any:
    """The content of a JSON file, validated as by `load_valid_yaml`."""
    content = read_json(path)
    validate(content, schema, str(path))
    return content


def read_yaml(path: str | Path) -> Any:
    """The content of a YAML file, without a schema; raises `StudyError` as `load_valid_yaml`."""
    return read_yaml_with_tree(Path(path))[0]


def read_yaml_with_tree(path: Path) -> tuple[Any, yaml.Node | None]:
    """(content, node tree) of a YAML file, without a schema; raises `StudyError` as `load_valid_yaml`."""
    try:
        text = path.read_text(encoding="utf-8")
        tree, content = _parse_once(text, path)
    except OSError as error:
        raise StudyError(f"{shorten_path(path)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        kind, line = recognize_file(path), error.object[: error.start].count(b"\n") + 1
        fault = f"{kind.name}; {kind.remedy}" if kind else f"not text in UTF-8, see line {line}; save it as UTF-8"
        raise StudyError(f"{shorten_path(path)}: is {fault}") from None
    except (yaml.YAMLError, *NOT_READ) as error:  # ValueError also for text that is not UTF-8
        raise StudyError(f"{shorten_path(path)}: {_describe_parser_error(error)}") from None
    except RecursionError:
        raise StudyError(
            f"{shorten_path(path)}: not valid YAML: it is nested too deeply, or refers to itself"
        ) from None
    if content is None:
        raise StudyError(f"{shorten_path(path)}: the file is empty")
    return content, tree


def parse_scalar(text: str, where: str) -> Any:
    """The value of one typed scalar, read as in a YAML file. where: name of its source in messages."""
    mark = " " if text.startswith(("...", "---")) else ""  # at the begin of a line they mark a document's end or begin
    loader = core_schema.Loader(mark + text)
    try:
        node = loader.get_single_node()
        why = core_schema.find_fault(node) if isinstance(node, yaml.ScalarNode) else "expected one value"
        if not why:
            return loader.construct_document(node)
    except (yaml.YAMLError, *NOT_READ) as error:
        why = _describe_parser_error(error)
    finally:
        loader.dispose()
    raise StudyError(f"{where}: {why}")


def _describe_parser_error(error: Exception) -> str:
    """One line with the place where the parser stopped, what it found, and in what."""
    problem = getattr(error, "problem", None)
    if problem is None:
        words = str(error).replace('in "<unicode string>", position', "at position")
        return f"not valid YAML: {to_one_line(words)}"
    mark, begin, context = (getattr(error, name, None) for name in ("problem_mark", "context_mark", "context"))
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    began = f" that begins on line {begin.line + 1}" if begin else ""
    return f"{place}not valid YAML: {to_one_line(problem)}" + (f" ({to_one_line(context)}{began})" if context else "")


_trees: dict[str, tuple[yaml.Node | None, bytes]] = {}  # {text: tree, marshalled content}
_valid: dict[bytes, None] = {}  # digests of schema and content


def _remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry to a cache; at its limit the oldest entry is dropped."""
    if len(cache) >= MOST_KNOWN:
        del cache[next(iter(cache))]
    cache[key] = value


def _parse_once(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """(node tree, content) of a text, parsed once; each caller gets a content of its own."""
    if text in _trees:
        tree, packed = _trees[text]
        return tree, marshal.loads(packed)  # noqa: S302  packed here
    tree, content = _parse(text, path)
    with contextlib.suppress(ValueError):  # nested more deeply than it can be packed
        _remember(_trees, text, (tree, marshal.dumps(content)))
    return tree, content


def _parse(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """(node tree, content) of a text, parsed in C where nesting cannot crash that parser.

    What is wrong is told by PyYAML's own parser.
    """
    if _limit_nesting(text) <= SURELY_SHALLOW:
        with contextlib.suppress(yaml.YAMLError, RecursionError, *NOT_READ):
            return _parse_with(core_schema.FastLoader, text, path)
    return _parse_with(core_schema.Loader, text, path)


def _limit_nesting(text: str) -> int:
    """Upper limit of a text's levels of nesting.

    Each block level begins in a column of its own, or as a sequence in its parent's; each flow level has a bracket.
    """
    longest_line = max(map(len, text.splitlines()), default=0)
    return min(len(text), 2 * longest_line + text.count("[") + text.count("{"))


def _parse_with(loader_class: Any, text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """(node tree, content) of a text by one of the two loaders, ambiguities refused."""
    loader = loader_class(text)
    try:
        tree = loader.get_single_node()
        if _count_values(tree, {}) > MOST_VALUES:
            why = f"its anchors refer to themselves, or stand for more than {MOST_VALUES} values"
            raise StudyError(f"{shorten_path(path)}: {why}; write the values out")
        _refuse_ambiguities(tree, path, (), set())
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def validate(content: Any, schema: str | dict[str, Any], where: str, tree: yaml.Node | None = None) -> None:
    """Raise `StudyError` for the first violation of the schema in ``content``.

    schema: its name in config/schemas, or itself. where: name of the source in the message. tree: its YAML node, for
    line numbers.
    """
    declared = read_schema(schema) if isinstance(schema, str) else schema
    key = _compute_digest(declared, content)
    if key in _valid:
        return
    validator = VALIDATOR(declared)
    errors = sorted(validator.iter_errors(content), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        error = _find_most_specific_cause(errors[0])
        path = list(error.absolute_path)
        description = hide_secrets(_describe_error(error, path)) + _suggest_quotes(error, _find_node(tree, path))
        raise StudyError(f"{where}: {_format_line(tree, path, _find_key_at_fault(error))}{description}")
    if key:
        _remember(_valid, key, None)


def _compute_digest(*contents: Any) -> bytes | None:
    """Digest that is equal for equal contents of equal types; None if they are not of plain types."""
    try:
        return hashlib.sha256(b"".join(marshal.dumps(each, 2) for each in contents)).digest()
    except ValueError:
        return None


def format_scalar(value: Any) -> str:
    """A value as YAML writes it, for messages."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shorten_path(path: str | Path) -> str:
    """A path for messages: relative to the repository or the working directory if it is inside."""
    inside = (find_relative_path(path, folder) for folder in (ROOT, Path.cwd()))
    return str(next((each for each in inside if each is not None), path))


def suggest_nearest(word: Any, valid_names: Iterable[str]) -> str:
    """``; did you mean ...?`` with the most similar of the valid names, or an empty text.

    Capitals, and dashes or blanks in the place of ``_``, make no difference.
    """
    by_plain = {normalize_name(each): each for each in reversed(list(valid_names))}
    matches = difflib.get_close_matches(normalize_name(str(word)), list(by_plain), n=1)
    return f"; did you mean '{by_plain[matches[0]]}'?" if matches else ""


def normalize_name(word: str) -> str:
    """A word without differences of case, dashes and blanks, as `suggest_nearest` compares names."""
    return re.sub(r"[-\s]+", "_", word.strip().casefold())


def _find_most_specific_cause(error: ValidationError) -> ValidationError:
    """The cause of an anyOf/oneOf error that reached deepest into the content.

    The error itself if the value has the type of no branch, and the schema says what is expected.
    """
    while error.context:
        cause = max(error.context, key=_rate_specificity)
        if EXPECTED in error.schema and cause.validator == "type" and cause.absolute_path == error.absolute_path:
            break
        error = cause
    return error


def _rate_specificity(cause: ValidationError) -> tuple[int, bool]:
    """Sort key of causes: a branch that failed deeper, or not for its type, is more likely the intended one."""
    return len(cause.absolute_path), cause.validator not in ("const", "type")


def _describe_error(error: ValidationError, path: Sequence[str | int]) -> str:
    """One line with the key, the wrong value and what is expected."""
    key = _format_key_path(path) or "the file"
    if error.validator == "additionalProperties":
        valid_names = list(error.schema.get("properties", {}))
        unknown = _find_key_at_fault(error)
        place = _format_key_path([*path, unknown])
        return f"{place}: unknown key{suggest_nearest(unknown, valid_names)}; known keys: {', '.join(valid_names)}"
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f"{key}: the key '{missing}' is missing"
    if error.validator == "dependentRequired":
        given_key = _find_key_at_fault(error)
        missing = next(name for name in error.validator_value[given_key] if name not in error.instance)
        why = f"the key '{given_key}' needs the key '{missing}' too; add {missing}, or leave {given_key} out"
        return f"{_format_key_path([*path, given_key])}: {why}"
    if error.validator == "enum":
        valid_names = [format_scalar(value) for value in error.validator_value]
        suggestion = suggest_nearest(str(error.instance)[:LONGEST_VALUE], valid_names)
        return f"{key}: {to_one_line(repr(error.instance))} is not one of {', '.join(valid_names)}{suggestion}"
    if error.validator == "uniqueItems":
        return f"{key}: {to_one_line(str(error.instance))} has a value twice"
    hint = error.schema.get("description")
    if expected := error.schema.get(EXPECTED, hint if error.validator == "pattern" else None):
        return f"{key}: {to_one_line(repr(error.instance))}: expected {expected}"
    return f"{key}: {_explain_mismatch(error)}" + (f" ({hint})" if hint else "")


def _suggest_quotes(error: ValidationError, node: yaml.Node | None) -> str:
    """Advice to quote a number, boolean or empty value where a text is expected. node: None if unknown."""
    expects_text = error.schema.get("type") == "string" or (
        error.validator == "enum" and all(isinstance(value, str) for value in error.validator_value)
    )
    if not expects_text or not isinstance(error.instance, bool | int | float | None):
        return ""
    written = node.value if isinstance(node, yaml.ScalarNode) else ""
    as_text = f": '{core_schema.shorten(written)}'" if written else ""
    return f"; for a text, put it in quotes{as_text}"


def _explain_mismatch(error: ValidationError) -> str:
    """The wrong value and what is expected, where the library's own words need explaining."""
    if error.validator == "not" and error.validator_value == {}:
        return "does not belong here"
    if error.validator == "type" and error.validator_value in ("number", "integer") and _is_numeral(error.instance):
        return f"{error.instance!r} is a text; write a number such as 0.001 or 1.0e-3, without quotes"
    if error.validator == "type" and error.validator_value == "boolean":
        return f"{to_one_line(repr(error.instance))}: expected true or false"
    return to_one_line(error.message)


def _is_numeral(text: object) -> bool:
    """True if a value is a text that reads as a finite number."""
    try:
        return isinstance(text, str) and math.isfinite(float(text))
    except ValueError:
        return False


def _find_key_at_fault(error: ValidationError) -> Any:
    """The key of a mapping that is unknown or needs a missing one; None for other errors."""
    if error.validator == "additionalProperties":
        return next(name for name in error.instance if name not in error.schema.get("properties", {}))
    if error.validator == "dependentRequired":
        needs = error.validator_value
        return next(key for key in needs if key in error.instance and not set(needs[key]) <= set(error.instance))
    return None


def _format_key_path(path: Sequence[str | int]) -> str:
    """A path into the content as text, such as ``runs[0].grid``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _format_line(tree: yaml.Node | None, path: Sequence[str | int], key: Any) -> str:
    """``line N: `` of the deepest node on ``path``; empty without a tree.

    key: a key of the mapping there, whose line is meant; None for the mapping's.
    """
    node = tree
    for part in path:
        child = _find_child(node, part)
        if child is None:
            break
        node = child
    else:
        if key is not None and isinstance(node, yaml.MappingNode):
            node = next((name for name, _ in node.value if name.value == str(key)), node)
    return f"line {node.start_mark.line + 1}: " if node is not None else ""


def _find_node(tree: yaml.Node | None, path: Sequence[str | int]) -> yaml.Node | None:
    """The node at ``path``, or None."""
    for part in path:
        tree = _find_child(tree, part)
    return tree


def _find_child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    """A node's child with this key or index, or None."""
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def _count_values(node: yaml.Node | None, sizes: dict[int, int]) -> int:
    """Number of values in a node, where an alias counts as all that it stands for. sizes: known ones by node."""
    if not isinstance(node, yaml.MappingNode | yaml.SequenceNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = MOST_VALUES + 1  # if it refers to itself
        pairs = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        sizes[id(node)] = 1 + sum(_count_values(each, sizes) for each in pairs)
    return sizes[id(node)]


def _refuse_ambiguities(node: yaml.Node | None, path: Path, place: tuple[str | int, ...], visited: set[int]) -> None:
    """Raise `StudyError` for duplicate keys and for values that YAML 1.1 and 1.2 read differently.

    place: of the node, from the top. done: nodes behind us.
    """
    if node is None or id(node) in visited:
        return
    visited.add(id(node))
    if why := core_schema.find_fault(node):
        raise StudyError(
            f"{shorten_path(path)}: line {node.start_mark.line + 1}: "
            f"{f'{_format_key_path(place)}: ' if place else ''}{why}"
        )
    if isinstance(node, yaml.MappingNode):
        earlier_keys: set[str] = set()
        for key, value in node.value:
            if why := _find_key_fault(key, earlier_keys):
                raise StudyError(f"{shorten_path(path)}: line {key.start_mark.line + 1}: {why}")
            earlier_keys.add(key.value)
            _refuse_ambiguities(value, path, (*place, key.value), visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _refuse_ambiguities(item, path, (*place, index), visited)


def _find_key_fault(key: yaml.Node, earlier_keys: set[str]) -> str | None:
    """Why a node cannot be a key, or None. earlier_keys: those of the mapping before it."""
    if not isinstance(key, yaml.ScalarNode):
        return "a key must be a plain name"
    if not key.style and (invisible := core_schema.MISPLACED.search(key.value)):
        return core_schema.explain_invisible(invisible[0], key.value)
    if key.tag not in (core_schema.TEXT, core_schema.MERGE):
        return f"the key {core_schema.shorten(key.value)} is not a text; put it in quotes"
    if key.value in earlier_keys:
        return f"the key '{core_schema.shorten(key.value)}' is given twice"
    return None
