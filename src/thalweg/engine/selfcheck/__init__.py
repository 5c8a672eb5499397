"""Whether this model on this machine keeps the promise: the same bits whatever happens around."""
