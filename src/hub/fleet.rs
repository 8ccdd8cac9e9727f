//! Reports and lines to each cluster's state.
