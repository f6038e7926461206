"""Client authentication: SASL mechanisms and the login modules of Java configurations.

A mechanism is an `Exchange`: an object that is stepped with the server's messages and returns the client's, or raises.
It uses no random numbers, clock or files: nonces, tokens and passwords are arguments.
"""
