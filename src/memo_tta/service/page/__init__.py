"""The web page: choose an image, corrupt it, and compare the predictions before and after adaptation."""
