"""An exhaustive search of a small world: the real driver's machine against a tiny broker, in every order of events."""
