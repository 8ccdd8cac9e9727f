//! The frames of the line: encode, decode, limits.
