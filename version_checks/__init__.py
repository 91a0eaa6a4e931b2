"""The tests under other versions of Python, torch and lightning: `make matrix`.

`environments` is the table of versions and makes an environment of each, with `stubs` where torch
asks for CUDA; `run` runs the tests there, `page` writes docs/versions.md.
"""
