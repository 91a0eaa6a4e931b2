"""A ladder of tasks, each a data set with the metric it is judged by: is `--loss auto` ever worse
than tuned cross-entropy, plain or weighted, with its best decision?
"""
