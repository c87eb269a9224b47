"""Reads NCCL's XML safely: no document types, bounded depth and values; rows by element."""

from __future__ import annotations

import xml.sax
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.sax.handler import ContentHandler, ErrorHandler

import defusedxml.sax
from defusedxml import DefusedXmlException

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import whole
from .topology_devices import Devices
from .topology_graph import Graphs

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_MOST_BYTES = 64 << 20
_MOST_DEPTH = 64
_MOST_ELEMENTS = 1_000_000
_MOST_VALUE_CHARS = 256
_MOST_ATTRIBUTES = 64


class _TooMuch(Exception):
    """Stops the parser; the message says what there is too much of."""


def tables_of(source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All rows of one file. Raises UnusableInput as `topology.parse` says."""
    c = Collector(source)
    text = whole(source, c.odd, _MOST_BYTES)
    elements = _Elements(c)
    try:
        defusedxml.sax.parseString(text, elements, ErrorHandler(), forbid_dtd=True)
    except DefusedXmlException as e:
        raise UnusableInput(
            "XML with a document type or entities of its own, which NCCL never writes; refused",
            path=source.name,
        ) from e
    except _TooMuch as e:
        raise UnusableInput(f"XML {e}; refused", path=source.name) from e
    except xml.sax.SAXException as e:
        if not elements.n_rows:
            raise UnusableInput(f"not XML that can be read: {_reason(e)}", path=source.name) from e
        c.odd("xml_broken", f"XML that breaks off ({_reason(e)}); what came before is kept",
              "lost")  # fmt: skip
    except (ValueError, LookupError) as e:  # an encoding that is declared and is none
        raise UnusableInput("XML in an unknown encoding", path=source.name) from e
    elements.finish()
    if not elements.n_rows:
        raise UnusableInput("XML without a device that NCCL knows", path=source.name)
    yield from c.rest()


def _reason(e: Exception) -> str:
    if isinstance(e, xml.sax.SAXParseException):
        where = f"line {e.getLineNumber()}, column {e.getColumnNumber()}"
        return f"{str(e.getMessage())[:100]} at {where}"
    return type(e).__name__


class _Elements(ContentHandler):
    """Gives each element to the reader of topologies or of graphs, with bounded attributes."""

    def __init__(self, c: Collector):
        super().__init__()
        self.c = c
        self.devices, self.graphs = Devices(c), Graphs(c)
        self._open: list[str] = []
        self._seen = 0

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self.devices.n_rows + self.graphs.n_rows

    def startElement(self, name: str, attrs: Any) -> None:
        """One element begins."""
        self._seen += 1
        if len(self._open) >= _MOST_DEPTH:
            raise _TooMuch(f"nested deeper than {_MOST_DEPTH} elements")
        if self._seen > _MOST_ELEMENTS:
            raise _TooMuch(f"with more than {_MOST_ELEMENTS} elements")
        if len(attrs) > _MOST_ATTRIBUTES:
            raise _TooMuch(f"with more than {_MOST_ATTRIBUTES} attributes in one element")
        values: dict[str, str] = {}
        for key, value in attrs.items():
            if len(value) > _MOST_VALUE_CHARS:
                self.c.odd("long_value", f"attributes of more than {_MOST_VALUE_CHARS} characters "
                           "are cut", "warning")  # fmt: skip
                value = value[:_MOST_VALUE_CHARS]
            values[key] = value
        name = name[:40]
        root = self._open[0] if self._open else name
        self._open.append(name)
        if root == "graphs":
            self.graphs.begin(name, values)
        elif root == "system" or self._open[-2:] == ["system", name]:
            self.devices.begin(name, values)

    def endElement(self, name: str) -> None:
        """One element ends."""
        root = self._open[0]
        if root == "graphs":
            self.graphs.end(self._open[-1])
        else:
            self.devices.end(self._open[-1])
        self._open.pop()

    def finish(self) -> None:
        """Adds the rows that needed all of the file."""
        self.devices.finish()
