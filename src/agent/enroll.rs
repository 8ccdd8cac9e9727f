//! Redeem the token, exchange keys, keep the identity; every step can be resumed.
