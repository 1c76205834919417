"""Downloads: where each data set is published, and how it is verified and unpacked."""
