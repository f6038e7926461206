"""The public producer: what the application's thread does, what the sender's thread does, and what the two share."""
