"""The text of one role file and its parts: YAML frontmatter, then a Markdown body.

Reads and writes text alone; it knows no folder, and nothing of what the keys mean. It is imported
only by a function that reads or writes a role, because it brings in PyYAML.

Reading and writing differ from plain YAML on purpose, so that nothing a person wrote is changed:

- Every scalar is read as the text it is written as: ``id: yes`` is ``"yes"``, ``name: 007`` is
  ``"007"``. A scalar that YAML itself would read as something else (a number, a date, a boolean,
  null) is a :class:`Bare` string, and is written back as it stood.
- A string is written so that any YAML reader gets that same string back.
- Keys keep their order. Of a key that stands twice the last counts, as in PyYAML, with a warning.
- The body is kept byte for byte, apart from line ends: CR LF and CR become LF. One empty line
  between the frontmatter and the body, and one line end at the end of the file, belong to the file.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import frontmatter
import yaml
from frontmatter.default_handlers import YAMLHandler

from .errors import RoleError, RoleFileError

_STRING = "tag:yaml.org,2002:str"
# What a plain or single-quoted scalar would fold, hide or lose; between double quotes it is escaped.
_NEEDS_ESCAPES = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_STANDARD: Any = yaml.resolver.Resolver()
_MAX_VALUES = 10_000


class Bare(str):
    """A scalar that stood without quotes and that YAML would not read as a string."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """What a role file says.

    Parameters
    ----------
    values : dict
        Frontmatter: strings, lists and mappings, in the order of the file.
    lines : dict
        For each key the line, from 1, where it stands.
    body : str
        The prompt.
    warnings : tuple of str
        What was assumed, each naming file and line.
    """

    values: dict[str, Any]
    lines: dict[str, int]
    body: str
    warnings: tuple[str, ...] = ()


def parse(data: bytes, file: str) -> Parts:
    """Take a role file apart.

    Parameters
    ----------
    data : bytes
        UTF-8, with or without a byte order mark, with LF or CR LF.
    file : str
        Name to use in errors and warnings.

    Raises
    ------
    RoleFileError
        Not UTF-8, no frontmatter, frontmatter that is never closed, or YAML that cannot be read;
        file and line are named.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RoleFileError("is not UTF-8: save it as UTF-8", file=file, line=line) from None
    text = _line_ends(text)
    blank = len(text) - len(text.lstrip("\n"))
    text = text[blank:]
    handler = _Handler(file, blank + 1)
    if not handler.detect(text):
        raise RoleFileError(
            "has no frontmatter: a role file begins with '---', 'id:', 'name:' and 'description:' lines, and '---'",
            file=file,
            line=1,
        )
    try:
        block, body = handler.split(text)
    except ValueError:
        raise RoleFileError(
            "the frontmatter that begins here is never closed: put a line '---' after its last key",
            file=file,
            line=blank + 1,
        ) from None
    values = handler.load(block)
    # The text of a boundary ends before its line end; then one empty line belongs to the file.
    body = body.removeprefix("\n").removeprefix("\n").removesuffix("\n")
    return Parts(values, handler.lines, body, tuple(handler.warnings))


def render(values: Mapping[str, Any], body: str) -> bytes:
    """Write a role file; :func:`parse` gives the same values and body back.

    Raises
    ------
    RoleError
        A value cannot be written as YAML or as UTF-8.
    """
    post = frontmatter.Post(_line_ends(body))
    post.metadata = dict(values)  # not as keyword arguments: a key may be called `content` or `handler`
    try:
        return _Handler("", 1).format(post).encode("utf-8")
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise RoleError(f"the role cannot be written as YAML ({str(error).splitlines()[0]})") from error


class _Handler(YAMLHandler):
    """python-frontmatter's YAML handler, strict about strings, bodies and places."""

    FM_BOUNDARY = re.compile(r"^-{3,}[ \t]*$", re.MULTILINE)

    def __init__(self, file: str, first_line: int) -> None:
        super().__init__()
        self.file = file
        self.first_line = first_line
        self.lines: dict[str, int] = {}
        self.warnings: list[str] = []

    def load(self, fm: str, **kwargs: object) -> dict[str, Any]:
        """Read the block between the two boundaries (it begins with the line end of the first)."""
        loader = None
        try:
            loader = _Loader(fm)
            node = loader.get_single_node()
            if node is None:
                return {}
            if not isinstance(node, yaml.MappingNode):
                raise RoleFileError("the frontmatter is no list of 'key: value' lines", file=self.file, line=1)
            values = cast("dict[str, Any]", loader.construct_document(node))
            if not _is_small(values):
                raise RoleFileError("the frontmatter is too large or refers to itself", file=self.file, line=1)
            self.lines = {str(key.value): self._line(key.start_mark) for key, _ in node.value}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise RoleFileError(
                f"the frontmatter cannot be read as YAML ({error.problem or 'unknown fault'}): "
                "put the value between quotes if it is text",
                file=self.file,
                line=self._line(mark) if mark else self.first_line,
            ) from None
        except yaml.YAMLError as error:
            line = self.first_line
            if isinstance(error, yaml.reader.ReaderError):
                line += fm.count("\n", 0, error.position)
            reason = str(error).splitlines()[0]
            raise RoleFileError(
                f"the frontmatter cannot be read as YAML ({reason})", file=self.file, line=line
            ) from None
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # PyYAML lets such errors through where an explicit tag does not fit its value.
            raise RoleFileError(
                f"the frontmatter has a tag that does not fit its value ({error})", file=self.file, line=self.first_line
            ) from None
        except RecursionError:
            raise RoleFileError("the frontmatter is nested too deeply", file=self.file, line=self.first_line) from None
        finally:
            if loader is not None:
                loader.dispose()
        for key, first, second in loader.duplicates:
            self.warnings.append(
                f"{self.file}, line {self._line(second)}: {key!r} stands already in line {self._line(first)}; "
                "the last one counts"
            )
        return values

    def export(self, metadata: Mapping[str, object], **kwargs: object) -> str:
        """Write the block, without the line end of its last line."""
        if not metadata:
            return ""
        text: str = yaml.dump(
            dict(metadata),
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=False,
            width=float("inf"),
            line_break="\n",
        )
        return text.removesuffix("\n")

    def format(self, post: frontmatter.Post, **kwargs: object) -> str:
        """Write the whole file; unlike the library's, nothing of the body is trimmed."""
        head = f"{self.START_DELIMITER}\n{self.export(post.metadata)}\n{self.END_DELIMITER}\n"
        return f"{head}\n{post.content}\n" if post.content else head

    def _line(self, mark: yaml.Mark) -> int:
        # The block begins with the line end of the opening boundary, so its line 0 is the boundary's.
        # Lines are counted by LF, as editors do, where YAML also counts NEL, LS and PS.
        buffer = mark.buffer
        if buffer is None:
            return self.first_line + int(mark.line)
        return self.first_line + buffer.count("\n", 0, mark.pointer)


class _Loader(yaml.SafeLoader):
    """A safe loader for which every plain scalar is a string, and which sees keys that stand twice."""

    # Without resolvers a plain scalar is a string, and `<<` is a key like any other.
    yaml_implicit_resolvers = {}  # noqa: RUF012 (an override; the base class declares it)

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[tuple[str, yaml.Mark, yaml.Mark]] = []

    def construct_string(self, node: yaml.ScalarNode) -> str:
        """Read a scalar, and remember whether its being a string depends on us."""
        # An escape can spell half a character (as "\ud800" does), which no request or file could carry.
        text = re.sub("[\ud800-\udfff]", "\ufffd", str(self.construct_scalar(node)))
        if node.style is None and _standard_tag(text) != _STRING:
            return Bare(text)
        return text

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave `<<` alone: merging would lose what was written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Read a mapping; of a key that stands twice the last counts, and its first place is kept."""
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.duplicates.append((key.value, seen[key.value], key.start_mark))
                seen[key.value] = key.start_mark
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor(_STRING, _Loader.construct_string)


class _Dumper(yaml.SafeDumper):
    """A safe dumper that quotes whatever another reader would not take for this string."""

    def represent_string(self, text: str) -> yaml.ScalarNode:
        """Choose quotes: escapes where characters need them, none where none are needed."""
        if isinstance(text, Bare):
            return self.represent_scalar(_standard_tag(text), str(text))
        return self.represent_scalar(_STRING, text, style='"' if _NEEDS_ESCAPES.search(text) else None)


_Dumper.add_representer(str, _Dumper.represent_string)
_Dumper.add_representer(Bare, _Dumper.represent_string)


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _standard_tag(text: str) -> str:
    """Return what YAML 1.1 takes a plain scalar for."""
    return str(_STANDARD.resolve(yaml.ScalarNode, text, (True, False)))


def _is_small(value: Any) -> bool:
    """Tell whether a value stays within bounds when its aliases are followed."""
    todo, count = [value], 0
    while todo:
        count += 1
        if count > _MAX_VALUES:
            return False
        item = todo.pop()
        if isinstance(item, Mapping):
            todo.extend(item.values())
        elif isinstance(item, list | tuple | set):
            todo.extend(item)
    return True
