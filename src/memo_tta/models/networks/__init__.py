"""Network definitions, one architecture a file; state-dict keys are those of the published weights."""
