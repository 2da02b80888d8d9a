"""Which files hold the changes of a version."""
