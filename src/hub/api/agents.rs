//! What agents call: join, assignment, reports, deploy keys, orders.
