"""The files of the log: actions, commits, file names, segments and protocol versions."""
