"""What a diagnosis says beside its numbers: a sentence on each part, and the words that it uses."""

from __future__ import annotations

from unskew.pages.page import Term

EXAMINATION = "examination relative to rank 1"
HEADINGS = {
    "curves": "Click curves",
    "evidence": "Examination: estimators and coverage",
    "matrix": "Click matrix",
    "judged": "Click matrix by label",
    "trust": "Trust",
    "factors": "Other bias factors",
    "co_clicks": "Clicks of one page",
    "graph": "What can be told apart",
    "ordering": "Do features tell the rank?",
    "log": "The log",
}
"""The sections for engineers, in order, by the parts of a diagnosis."""
TEXTS = {
    "curves": (
        "Who clicks where. Intervals are of pages, or of queries, drawn again, not of single rows. Effective "
        "pages are the independent ones that would tell as much."
    ),
    "evidence": (
        "Documents that one query saw at several ranks, and shuffled pages: what differs between ranks is "
        "examination, since the document is the same. Estimators that disagree warn that something else moved too."
    ),
    "matrix": (
        "Click rates by relevance and rank. Where examination and relevance multiply, one singular value stands "
        "out; a second one says that a curve of positions is not enough. p is of one being enough, d the width of "
        "vectors that is worth trying."
    ),
    "judged": (
        "Click rates of documents with the same label, by rank. A label is coarse: within one, what stands higher "
        "may be better, so p below 0.01 says that one curve times one number a label is not enough, and not why."
    ),
    "trust": (
        "Does a click at the top mean less? Clicks are alpha times relevance plus beta; informative says how much "
        "a click tells, relative to rank 1."
    ),
    "factors": (
        "Which columns of the page change clicks, at one rank and for one query and document. Effect is clicks "
        "relative to the first value; decay is how much slower they fall with the logarithm of the rank."
    ),
    "co_clicks": "Whether clicks of one page hang together: several kinds of people, or reading that ends.",
    "graph": (
        "Two ranks can be compared where a query saw a document at both; what stands out more is better known. "
        "Ranks in different parts cannot; which links are weak, and which swaps would mend them, is told below."
    ),
    "ordering": (
        "Two towers explain clicks by features and by rank, each by itself. Where features tell the rank, they "
        "cannot keep the two apart. A line and trees were fitted on half of the queries and tried on the others. "
        "Predicted is the mean place by features at each rank, spread the middle half of places, and linked the "
        "ranks that documents of equal features were shown at."
    ),
    "log": "What was read.",
}
TERMS = (
    Term("page", "One list of results, shown once."),
    Term("rank", "The place of a result on its page, 1 at the top."),
    Term("relevance", "How likely a result is clicked once somebody looks at it, wherever it stands."),
    Term("bias", "What changes clicks besides relevance."),
    Term("examination", "How often a rank is looked at, relative to rank 1. Files and papers call it propensity."),
    Term(
        "swap", "One query that showed a document at two ranks: the document is the same, so the rest is the rank."
    ),
    Term("shuffled page", "A page in random order: every rank holds the same mix of documents."),
    Term("random slot", "A place on a page that was filled at random."),
    Term("trust", "Readers take the top for better than it is: a click there tells less."),
    Term("segment", "A column that results are told apart by, such as the device."),
    Term("interval", "Where the true number lies in 95 of 100 such logs."),
    Term("p", "How often chance alone shows as much; below 0.01 is believed here."),
    Term("link", "Documents that one query saw at both of two ranks, so that the two can be compared."),
    Term("information", "How sure a link is: 1 over the variance of the logarithm of the ratio of examination."),
    Term(
        "singular value", "A pattern in the click matrix; one is enough where examination and relevance multiply."
    ),
)
"""The words of the page, for who has not met them."""
