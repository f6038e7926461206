"""Values to protocol bytes and back. Knows layouts; knows no state, no socket and no producer."""
