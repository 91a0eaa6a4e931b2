"""The output of `evalgrad compare`: a table in the terminal and one self-contained HTML file."""

from evalgrad_lab.report.page import render, write_report
from evalgrad_lab.report.terminal import print_table

__all__ = ["print_table", "render", "write_report"]
