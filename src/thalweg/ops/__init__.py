"""One folder an op: its contract (`__init__`), its specification (`reference`), its kernels, its maths."""
