"""`flockctl view`: what is known of many nodes, gathered on the looker's machine and shown by a page it serves.

`source` says what a gatherer is; `picture` holds what they found, `server` hands it to pages.
"""
