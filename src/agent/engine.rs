//! What to install and what healthy means, per engine.

pub mod flux;
