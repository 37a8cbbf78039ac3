"""What only experiments use: learners that change with each page, visitors, theorems, a writer of UBI files."""
