//! /livez, /readyz and /metrics, on their own port.
