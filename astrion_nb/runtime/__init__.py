"""The running team: bus, order, mailboxes, waits, agents."""
