"""Commands as they are typed."""

from __future__ import annotations

import shlex


def command_line(name: str, *arguments: object, **flags: object) -> str:
    """A command as it is typed; flags that are None, False or empty are left out.

    >>> command_line("reproduce", "lbd-eta", on=["mq2008", "generated"], quick=True, seeds=None, out="my runs")
    "unskew reproduce lbd-eta --on mq2008 --on generated --quick --out 'my runs'"
    """
    words = ["unskew", name, *map(str, arguments)]
    for key, value in flags.items():
        flag = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for one in each for word in (flag, str(one))]
    return shlex.join(words)
