"""The lab: everything that trains. Install it with `pip install evalgrad[lab]`; the command
`evalgrad` is its front door.
"""
