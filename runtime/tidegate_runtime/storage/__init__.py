"""Where tables lie: put-if-absent on file systems and object stores, each promise kept or named."""
