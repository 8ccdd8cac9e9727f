//! Headers and paths of a proxied request: what passes, what is removed, what is refused.
