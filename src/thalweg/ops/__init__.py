"""One folder an op: contract (`__init__`), specification (`reference`), kernels, maths (README)."""
