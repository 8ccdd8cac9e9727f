//! The YAML that a cluster owner applies, from the constants the code uses.
