//! The table of the API's operations: who may call each, what it does, what goes in and what comes out.

mod access;
mod agents;
mod clusters;
mod hub;
mod repeat;

pub use repeat::{Repeat, repeat};

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Anyone,
    /// `Authorization: Bearer lmt1.…`
    User,
    /// `Linesman-Signature`, or a stream of the line.
    Agent,
}

/// One operation: method, path, who calls it, what it does, request body, answer.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub caller: Caller,
    pub summary: &'static str,
    /// The name of a component, or empty.
    pub body: &'static str,
    /// The name of a component, `[]` in front for a page of them, or empty.
    pub answer: &'static str,
}

/// Every operation of the hub's own API; the Kubernetes API below `/clusters/{name}/` describes itself.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    let parts = [agents::ALL, clusters::ALL, access::ALL, hub::ALL];
    parts.into_iter().flatten()
}

const fn operation(
    call: (&'static str, &'static str),
    caller: Caller,
    summary: &'static str,
    bodies: (&'static str, &'static str),
) -> Operation {
    Operation {
        method: call.0,
        path: call.1,
        caller,
        summary,
        body: bodies.0,
        answer: bodies.1,
    }
}
