"""What runs say about two or more arms: which of them may be compared, the estimate, its interval and a verdict."""
