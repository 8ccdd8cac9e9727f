//! Since when the agent has seen each controller that does not work as it is: an upgrade that hangs has no more time for an agent that
//! is started again. Pure.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::agent::plan::History;
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};

/// More than an install has controllers.
const MOST: usize = 32;
/// What comes up sooner is an upgrade like any other, and would be two writes.
const SOON: Duration = Duration::minutes(1);

/// One controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    kind: String,
    namespace: String,
    name: String,
    /// RFC 3339, by the API server's clock.
    written: String,
    /// The same by the agent's.
    seen: String,
}

/// What is to be kept. Of what is at work the time that counts is short, and each upgrade would be a write.
pub(super) fn kept(now: OffsetDateTime, history: &History) -> Vec<Version> {
    let versions = history.versions.iter();
    let versions = versions.filter(|(id, _)| history.down.contains_key(id));
    let versions = versions.filter(|(_, (_, seen))| now - *seen >= SOON);
    let versions = versions.map(|(id, (written, seen))| Version {
        kind: id.kind.as_str().to_owned(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        written: rfc3339(*written),
        seen: rfc3339(*seen),
    });
    versions.take(MOST).collect()
}

/// Goes on with it, by a clock that is known to have been `set_by` so much since; none = it may be another clock, by which nothing can
/// be said of those times. What cannot be read says nothing.
pub(super) fn resume(history: &mut History, all: &[Version], set_by: Option<Duration>) {
    let Some(set_by) = set_by else {
        return;
    };
    let versions = all.iter().take(MOST).filter_map(|version| {
        let kind = Kind::ALL.iter().find(|k| k.as_str() == version.kind)?;
        let id = ObjectId::new(*kind, &version.namespace, &version.name);
        let written = parse_rfc3339(&version.written)?;
        let seen = parse_rfc3339(&version.seen)?.saturating_add(set_by);
        Some((id, (written, seen)))
    });
    history.versions.extend(versions);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
    }

    fn id(kind: Kind, name: &str) -> ObjectId {
        ObjectId::new(kind, "flux-system", name)
    }

    /// F48, W25
    #[test]
    fn an_upgrade_is_as_old_to_the_next_agent_where_the_clock_is_known() {
        let [controller, other] = ["a", "b"].map(|name| id(Kind::Deployment, name));
        let before = History {
            versions: [
                (controller.clone(), (at(600), at(10))),
                (other, (at(600), at(10))),
            ]
            .into(),
            down: [(controller.clone(), at(20))].into(),
            ..History::default()
        };
        assert_eq!(kept(at(69), &before), []);
        let text = serde_json::to_string(&kept(at(70), &before)).unwrap();
        let all: Vec<Version> = serde_json::from_str(&text).unwrap();
        for (set_by, seen) in [
            (Some(0), Some(10)),
            (Some(-7_200), Some(-7_190)),
            (None, None),
        ] {
            let mut after = History::default();
            resume(&mut after, &all, set_by.map(Duration::seconds));
            let known = after.versions.get(&controller);
            let expected = seen.map(|seen| (at(600), at(seen)));
            assert_eq!(known.copied(), expected, "{set_by:?}");
            assert_eq!(after.versions.len(), usize::from(seen.is_some()));
        }
    }

    #[test]
    fn no_more_is_kept_than_an_install_has_and_what_cannot_be_read_says_nothing() {
        let many = || (0..100).map(|n| id(Kind::Deployment, &n.to_string()));
        let before = History {
            versions: many().map(|id| (id, (at(0), at(1)))).collect(),
            down: many().map(|id| (id, at(1))).collect(),
            ..History::default()
        };
        let mut all = kept(at(61), &before);
        assert_eq!(all.len(), MOST);
        all.truncate(3);
        "Kite".clone_into(&mut all[0].kind);
        "yesterday".clone_into(&mut all[1].seen);
        let mut after = History::default();
        resume(&mut after, &all, Some(Duration::ZERO));
        let expected = (id(Kind::Deployment, &all[2].name), (at(0), at(1)));
        assert_eq!(after.versions, [expected].into());
    }
}
