//! Facts about the cluster: collected here, summarised by a pure function.
