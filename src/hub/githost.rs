//! Git hosts: deploy keys and branches.

pub mod embedded;
