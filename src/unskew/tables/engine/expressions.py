"""Ibis and the types of its expressions, for steps on an engine; loaded when the first expression is made.

That takes half a second, and many who import a step make none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis as ibis
    from ibis.expr.types import Column as Column
    from ibis.expr.types import Table as Table
    from ibis.expr.types import Value as Value
else:
    Column = Table = Value = Any

    class _Ibis:
        def __getattr__(self, name: str) -> Any:
            import ibis

            return getattr(ibis, name)

    ibis = _Ibis()
