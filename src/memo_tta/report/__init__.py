"""Reports: tables, pictures and pages for people."""
