"""Logins that need the world: tokens, Kerberos, credentials of AWS. Loaded only where options ask for them."""
