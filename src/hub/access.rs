//! Principal, verb and cluster to: allow as this user and these groups, or deny.
