"""Who is at work: leases, intents, holds, and what becomes of what the dead left."""
