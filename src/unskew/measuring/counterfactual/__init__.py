"""What a ranking is worth, from logged clicks, without labels: estimates on different grounds, a verdict."""
