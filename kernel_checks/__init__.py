"""The CPU kernels under other eyes: sanitizers, other compilers, another processor.

`record` writes down calls of the kernels as the tests' losses make them, `replay.cpp` makes them
again without Python and compares every byte, `__main__` builds it in many ways. A replay needs no
torch, so that what a sanitizer says is about the kernels alone. `wheel` builds the kernels for
older systems, with the names of `old_glibc.c`, and looks at what came of it; `speed` times the
losses with such a library and with the installed one.
"""
