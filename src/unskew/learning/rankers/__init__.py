"""What scores documents."""
