"""The commands of `evalgrad`, one module each: a dataclass of options, a function, which is the
Python API, and `main(options)`, which prints the result.
"""
