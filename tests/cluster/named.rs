//! Faults by their class: what people see of those that no other test brings about, what is done about them, and what is left.

mod whole;
