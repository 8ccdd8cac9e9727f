//! Kubernetes requests from users to a stream of the line.
pub mod exchange;
pub mod limits;
pub mod rewrite;
