//! Fault points for tests: the process kills itself at a boundary of the adoption, once.
//!
//! `LINESMAN_FAULT_AT=<step>-<before|after>:<marker file>` on `linesman agent`. The marker is written before the
//! end, so that the next start goes on.

use std::path::PathBuf;
use std::str::FromStr;

use crate::wire::report::{StepName, StepReport, StepState};

/// Where the process kills itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    step: StepName,
    edge: Edge,
    marker: PathBuf,
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    Before,
    After,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a fault point: it reads <step>-<before|after>:<marker file>")]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let parsed = || {
            let (point, marker) = text.split_once(':')?;
            let (step, edge) = point.split_once('-')?;
            let step = StepName::ALL.into_iter().find(|s| s.as_str() == step)?;
            let edge = match edge {
                "before" => Edge::Before,
                "after" => Edge::After,
                _ => return None,
            };
            let marker = (!marker.is_empty()).then(|| PathBuf::from(marker))?;
            Some(Self { step, edge, marker })
        };
        parsed().ok_or_else(|| FaultError(text.to_owned()))
    }
}

/// The fault point of this process, if it has one.
#[derive(Debug, Clone, Default)]
pub struct Faults(pub Option<Fault>);

impl Faults {
    /// Ends the process where the fault point is here and its marker is not there yet.
    pub fn at(&self, step: StepName, edge: Edge) {
        let Some(fault) = &self.0 else { return };
        if fault.step != step || fault.edge != edge || fault.marker.exists() {
            return;
        }
        if std::fs::write(&fault.marker, b"hit\n").is_ok() {
            tracing::error!(%step, ?edge, "fault point: killing this process");
            std::process::abort();
        }
    }

    /// The same by a step's report, for steps that another task takes.
    pub fn report(&self, report: &StepReport) {
        match report.state {
            StepState::Running => self.at(report.step, Edge::Before),
            StepState::Done => self.at(report.step, Edge::After),
            StepState::Waiting | StepState::Failed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_points_are_read() {
        let fault = Fault {
            step: StepName::Join,
            edge: Edge::After,
            marker: "/tmp/m".into(),
        };
        assert_eq!("join-after:/tmp/m".parse(), Ok(fault));
        for bad in [
            "",
            "join",
            "join-after",
            "join-after:",
            "x-after:/m",
            "join-amid:/m",
        ] {
            assert_eq!(bad.parse::<Fault>(), Err(FaultError(bad.to_owned())));
        }
    }
}
