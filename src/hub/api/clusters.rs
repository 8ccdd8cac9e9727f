//! Clusters, join tokens and heals, for operators.
