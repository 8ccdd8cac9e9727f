//! RFC 9457 problems, from a closed set of slugs.
