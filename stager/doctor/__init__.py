"""``stage doctor``: looks at everything that staging needs, one thing after the other, and says what to do.

Each module looks at one area and gives findings (:mod:`stager.doctor.findings`). Nothing here raises for what it looks
for, nothing is left behind, and no secret is ever part of a finding.
"""
