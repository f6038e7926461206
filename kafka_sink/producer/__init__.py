"""The public producer: the application threads' part, the sender thread's part, and what they share."""
