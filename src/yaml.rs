//! Kubernetes documents, within a budget.
