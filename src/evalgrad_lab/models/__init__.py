"""The lab's networks, one file each, small enough to read."""
