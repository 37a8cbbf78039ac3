"""What the arms of a study are, for readers: methods in a line with their paper, and what does not learn."""

from unskew.learning.methods import LEARNERS, Learner
from unskew.pages.page import Term
from unskew.settings import paper, says

FROM_CLICKS = "those that learn from clicks"
LOGGING = Term("logging", "The ranker whose pages were shown and clicked; it does not learn from the clicks.")
RANDOM = Term("random", "Documents in random order.")
UNLEARNED = {term.name: term for term in (LOGGING, RANDOM)}
"""Arms without a method."""


def method_term(label: str, method: str | Learner, settings: str = "") -> Term:
    """An arm of this label, which is a method, maybe with settings of its own.

    >>> method_term("heavy", "dla", "max_weight = 20").says
    'dla with max_weight = 20: Learn ranker and examination together.'
    """
    name, config = (method, LEARNERS[method]) if isinstance(method, str) else (method.name, type(method))
    about = paper(config)
    how = f"{name} with {settings}: " if settings else f"{name}: " if label != name else ""
    return Term(label, how + says(config), about[:1].upper() + about[1:])
