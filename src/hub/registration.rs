//! A join token's life: issue, redeem, revoke, expire.
