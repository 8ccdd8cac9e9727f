//! /livez and /readyz, which tell the truth.
