//! A cluster's record to its catalog files.
