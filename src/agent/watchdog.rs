//! The loop that observes, plans and acts, and keeps the record of each heal.
