"""Encodes and decodes protocol messages. Knows layouts; knows no state, no socket and no producer."""
