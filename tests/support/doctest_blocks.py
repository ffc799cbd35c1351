"""An extension of griffe for the API page: the examples of docstrings become code blocks.

In Markdown, `>>>` at the beginning of a line is a quotation.
"""

import re
from typing import Any, Final

from griffe import Extension, Object

_EXAMPLE: Final = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)
_FLAGS: Final = re.compile(r" *# doctest: .*$", re.MULTILINE)


def with_blocks(text: str) -> str:
    """Fence every example of a docstring; it ends at an empty line."""
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{_FLAGS.sub('', found[0])}\n{found[1]}```", text)


class DoctestBlocks(Extension):
    """The extension, by the name that mkdocs.yml gives it."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of an object when it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)
