"""The stops of the tour, one per file. Each has a TITLE and a `show(guide)`."""
