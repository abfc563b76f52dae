"""The papers' figures and tables, one file each: ``compute(…) → result``, ``draw(ax, result)``.

A figure never trains: it reads saved results.
"""
