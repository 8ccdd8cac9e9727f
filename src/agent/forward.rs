//! Requests from the line to the local API server, under the line's own ServiceAccount.
