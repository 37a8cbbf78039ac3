"""What is learned by running many: the demo, comparisons, papers tried again."""
