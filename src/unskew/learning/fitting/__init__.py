"""How rankers are trained."""
