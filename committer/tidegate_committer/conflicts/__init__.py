"""Whether a proposal conflicts with a winning commit, and how it is rebased over one."""
