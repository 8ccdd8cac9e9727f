//! Reading the audit.
