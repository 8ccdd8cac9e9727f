//! The agent's own policy on what the line may do.
