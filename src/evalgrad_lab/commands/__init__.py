"""The commands of `evalgrad`, one module each: a dataclass of options, the function that is the
Python API, and `main(options)`, which prints what it found.
"""
