"""Files of `_delta_log`: actions, commits, file names, log segments and protocol versions."""
