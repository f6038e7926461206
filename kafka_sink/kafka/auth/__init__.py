"""Authentication that needs I/O: tokens, Kerberos, AWS credentials. Imported only if options need it."""
