//! known_hosts lines: parse, match, print.
