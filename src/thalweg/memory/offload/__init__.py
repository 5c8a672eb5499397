"""Where sequences go that must give up their place, and come back from bit for bit."""
