"""Reports of evaluation runs: terminal tables, Markdown, HTML pages, plots and data files."""
