//! Engine bundles: import, list, fetch by digest.
