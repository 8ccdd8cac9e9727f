//! Fault points for tests: the process kills itself at a boundary of the adoption, of a key's rotation or of a change of
//! the engine, once.
//!
//! `LINESMAN_FAULT_AT=<step>-<before|after>:<marker file>`, or `key-<boundary>` or `change-<stage>` for the first part,
//! on `linesman agent`. The marker is written before the end, so that the next start goes on.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::wire::report::{StepName, StepReport, StepState};

/// Where the process kills itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    point: Point,
    marker: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Step(StepName, Edge),
    Key(Boundary),
    Change(Stage),
}

/// Where a change of the engine can be cut, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is kept, with what was before it.
    Remembered,
    /// The new bundle is the one in force.
    Stored,
    /// The first object is as the new bundle has it.
    Applied,
    /// The engine works with it.
    Proven,
    /// What it has no use for is gone.
    Trimmed,
    /// It is over, and no longer kept.
    Dropped,
    /// That it did not work is kept.
    Failed,
    /// The bundle of before is in force again.
    Returned,
}

impl Stage {
    /// Of a change that works, in their order.
    pub const WORKS: [Self; 6] = [
        Self::Remembered,
        Self::Stored,
        Self::Applied,
        Self::Proven,
        Self::Trimmed,
        Self::Dropped,
    ];
    /// Of one that does not: its way back.
    pub const BACK: [Self; 2] = [Self::Failed, Self::Returned];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Remembered => "remembered",
            Self::Stored => "stored",
            Self::Applied => "applied",
            Self::Proven => "proven",
            Self::Trimmed => "trimmed",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
            Self::Returned => "returned",
        }
    }
}

/// Where a key's rotation can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// The successor is stored.
    Made,
    /// It stands at the hub and the Git host.
    Registered,
    /// The catalog was read with it.
    Proven,
    /// It is the present key.
    Promoted,
    /// The engine was seen to fetch with it.
    Fetched,
    /// The others are deleted at the Git host.
    Dropped,
    /// Nothing is left to do.
    Settled,
    /// The identity key's successor is stored.
    IdentityMade,
    /// The hub knows it.
    IdentityRegistered,
    /// It is the present key.
    IdentityPromoted,
}

impl Boundary {
    /// Of the deploy key, in their order.
    pub const DEPLOY: [Self; 7] = [
        Self::Made,
        Self::Registered,
        Self::Proven,
        Self::Promoted,
        Self::Fetched,
        Self::Dropped,
        Self::Settled,
    ];
    /// Of the identity key, in their order.
    pub const IDENTITY: [Self; 3] = [
        Self::IdentityMade,
        Self::IdentityRegistered,
        Self::IdentityPromoted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Registered => "registered",
            Self::Proven => "proven",
            Self::Promoted => "promoted",
            Self::Fetched => "fetched",
            Self::Dropped => "dropped",
            Self::Settled => "settled",
            Self::IdentityMade => "identity-made",
            Self::IdentityRegistered => "identity-registered",
            Self::IdentityPromoted => "identity-promoted",
        }
    }
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    Before,
    After,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a fault point: it reads <step>-<before|after>:<marker file>, key-<boundary>:<marker file> or change-<stage>:<marker file>"
)]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let parsed = || {
            let (point, marker) = text.split_once(':')?;
            let (step, edge) = point.split_once('-')?;
            let marker = (!marker.is_empty()).then(|| PathBuf::from(marker))?;
            if step == "key" {
                let mut all = Boundary::DEPLOY.into_iter().chain(Boundary::IDENTITY);
                let boundary = all.find(|b| b.as_str() == edge)?;
                let point = Point::Key(boundary);
                return Some(Self { point, marker });
            }
            if step == "change" {
                let mut all = Stage::WORKS.into_iter().chain(Stage::BACK);
                let point = Point::Change(all.find(|s| s.as_str() == edge)?);
                return Some(Self { point, marker });
            }
            let step = StepName::ALL.into_iter().find(|s| s.as_str() == step)?;
            let edge = match edge {
                "before" => Edge::Before,
                "after" => Edge::After,
                _ => return None,
            };
            let point = Point::Step(step, edge);
            Some(Self { point, marker })
        };
        parsed().ok_or_else(|| FaultError(text.to_owned()))
    }
}

/// The fault point of this process, if it has one.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    kill: Option<Fault>,
    /// In one process with its test: at this boundary the work stands still for good, and says so.
    halt: Option<(Boundary, Arc<Notify>)>,
}

impl Faults {
    pub fn new(kill: Option<Fault>) -> Self {
        Self { kill, halt: None }
    }

    /// Work stands still at this boundary, as if the process had ended there; the test is told and drops it.
    pub fn halting(at: Boundary) -> (Self, Arc<Notify>) {
        let told = Arc::new(Notify::new());
        let halt = Some((at, told.clone()));
        (Self { kill: None, halt }, told)
    }

    /// Ends the process where the fault point is here and its marker is not there yet.
    pub fn at(&self, step: StepName, edge: Edge) {
        self.reached(Point::Step(step, edge));
    }

    /// The same at a stage of a change of the engine.
    pub fn change(&self, stage: Stage) {
        self.reached(Point::Change(stage));
    }

    /// The same at a boundary of a key's rotation.
    pub async fn key(&self, boundary: Boundary) {
        self.reached(Point::Key(boundary));
        if let Some((_, told)) = self.halt.as_ref().filter(|(at, _)| *at == boundary) {
            told.notify_one();
            std::future::pending::<()>().await;
        }
    }

    fn reached(&self, point: Point) {
        let Some(fault) = &self.kill else { return };
        if fault.point != point || fault.marker.exists() {
            return;
        }
        if std::fs::write(&fault.marker, b"hit\n").is_ok() {
            tracing::error!(?point, "fault point: killing this process");
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
        let fault = |point| Fault {
            point,
            marker: "/tmp/m".into(),
        };
        let join = Point::Step(StepName::Join, Edge::After);
        assert_eq!("join-after:/tmp/m".parse(), Ok(fault(join)));
        let dropped = Point::Key(Boundary::Dropped);
        assert_eq!("key-dropped:/tmp/m".parse(), Ok(fault(dropped)));
        let made = Point::Key(Boundary::IdentityMade);
        assert_eq!("key-identity-made:/tmp/m".parse(), Ok(fault(made)));
        let stored = Point::Change(Stage::Stored);
        assert_eq!("change-stored:/tmp/m".parse(), Ok(fault(stored)));
        for bad in [
            "",
            "join",
            "join-after",
            "join-after:",
            "x-after:/m",
            "join-amid:/m",
            "key-before:/m",
            "key-made:",
            "change-made:/m",
        ] {
            assert_eq!(bad.parse::<Fault>(), Err(FaultError(bad.to_owned())));
        }
    }
}
