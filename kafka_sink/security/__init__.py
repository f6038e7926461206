"""How a client proves who it is: SASL mechanisms and the login modules that Java configurations name them by.

A mechanism is an `Exchange`: an object that is stepped by the server's bytes and answers with the client's, or fails by
name. It draws no random numbers, has no clock and reads no file: nonces, tokens and passwords are arguments.
"""
