//! Which controllers owe an answer for longer than the question says that their object carries: the agent after this one goes on
//! waiting from the first one. Pure.

use serde::{Deserialize, Serialize};
use time::Duration;

use crate::agent::plan::History;
use crate::agent::plan::silence::Silence;
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};

/// There are as many as an install has roots and canaries.
const MOST: usize = 8;

/// One object that was asked again while it owed an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owed {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    /// RFC 3339.
    since: String,
    asked: String,
    said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
}

/// What is to be kept: of one that was asked once, the object itself says since when.
pub(super) fn kept(history: &History) -> Vec<Owed> {
    let again = |(_, silence): &(&ObjectId, &Silence)| silence.since < silence.asked;
    let owed = history
        .silent
        .iter()
        .filter(again)
        .map(|(id, silence)| Owed {
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            uid: silence.uid.clone(),
            since: rfc3339(silence.since),
            asked: rfc3339(silence.asked),
            said: silence.said.clone(),
            taken: silence.taken.map(rfc3339),
        });
    owed.take(MOST).collect()
}

/// Goes on with it, by a clock that is known to have been `set_by` so much since; what cannot be read says nothing.
pub(super) fn resume(history: &mut History, all: &[Owed], set_by: Duration) {
    let at = |text: &str| Some(parse_rfc3339(text)?.saturating_add(set_by));
    let owed = all.iter().take(MOST).filter_map(|owed| {
        let kind = Kind::ALL.iter().find(|k| k.as_str() == owed.kind)?;
        let id = ObjectId::new(*kind, &owed.namespace, &owed.name);
        let silence = Silence {
            uid: owed.uid.clone(),
            since: at(&owed.since)?,
            asked: at(&owed.asked)?,
            said: owed.said.clone(),
            seen: None,
            able: false,
            taken: owed.taken.as_deref().and_then(at),
        };
        Some((id, silence))
    });
    history.silent.extend(owed);
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new(Kind::Kustomization, "flux-system", name)
    }

    fn silence(since: i64, asked: i64) -> Silence {
        Silence {
            uid: "u".to_owned(),
            since: at(since),
            asked: at(asked),
            said: "s".to_owned(),
            seen: Some(at(asked)),
            able: true,
            taken: Some(at(since + 1)),
        }
    }

    /// W12, W25: an agent that is started again waits no longer than one that goes on.
    #[test]
    fn what_was_asked_again_is_owed_over_a_restart_and_all_else_is_in_the_object() {
        let all = [
            ("once", silence(10, 10)),
            ("again", silence(10, 60)),
            ("paused", silence(70, 60)),
        ];
        let before = History {
            silent: all.map(|(name, silence)| (id(name), silence)).into(),
            ..History::default()
        };
        let text = serde_json::to_string(&kept(&before)).unwrap();
        let mut after = History::default();
        resume(
            &mut after,
            &serde_json::from_str::<Vec<Owed>>(&text).unwrap(),
            Duration::ZERO,
        );
        let expected = Silence {
            seen: None,
            able: false,
            ..silence(10, 60)
        };
        assert_eq!(after.silent, [(id("again"), expected)].into());
    }

    #[test]
    fn no_more_is_kept_than_an_install_has_and_what_cannot_be_read_says_nothing() {
        let many = (0..100).map(|n| (id(&n.to_string()), silence(0, 1)));
        let before = History {
            silent: many.collect(),
            ..History::default()
        };
        let mut all = kept(&before);
        assert_eq!(all.len(), MOST);
        all.truncate(3);
        "Kite".clone_into(&mut all[0].kind);
        "yesterday".clone_into(&mut all[1].since);
        let mut after = History::default();
        resume(&mut after, &all, Duration::ZERO);
        assert_eq!(after.silent.len(), 1);
    }
}
