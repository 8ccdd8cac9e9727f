//! Several clusters, one after the other: what goes wrong in one does not reach the next.

use anyhow::{Context as _, Result};

use crate::cli::cluster::list::fits;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::hub::selector::Selector;
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;
use crate::wire::report::Phase;

/// In which order, and who is left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rollout {
    turns: Vec<ClusterName>,
    /// Nobody there could be waited for.
    away: Vec<ClusterName>,
}

impl Rollout {
    /// Of the clusters those that all `selectors` take; where each is `waited` for, those that are there now.
    pub(super) fn of(mut clusters: Vec<ToldCluster>, selectors: &[Selector], waited: bool) -> Self {
        clusters.retain(|cluster| fits(cluster, selectors));
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        let there = |cluster: &ToldCluster| !waited || is_there(cluster);
        let (turns, away): (Vec<_>, Vec<_>) = clusters.into_iter().partition(there);
        let names = |clusters: Vec<ToldCluster>| clusters.into_iter().map(|c| c.name).collect();
        Self {
            turns: names(turns),
            away: names(away),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.away.is_empty()
    }

    /// Gives each cluster its turn; the first failure ends it.
    pub(super) async fn run(
        &self,
        mut turn: impl AsyncFnMut(&ClusterName) -> Result<()>,
    ) -> Result<()> {
        let all = self.turns.len();
        for (done, name) in self.turns.iter().enumerate() {
            progress_line(&format!("cluster {name}, {} of {all}", done + 1));
            turn(name).await.with_context(|| {
                let behind = listed(self.turns.get(done + 1..).unwrap_or_default());
                format!(
                    "stopped at cluster {name}; upgraded before it: {done}, not begun: {behind}"
                )
            })?;
        }
        if self.away.is_empty() {
            return Ok(());
        }
        let (missing, away) = (self.away.len(), listed(&self.away));
        let text = format!("{all} upgraded; {missing} left out, for they are not there: {away}");
        let next = "run it again when they are back; see: linesman cluster list";
        Err(Failure::new(Code::Failed, text, next).into())
    }
}

/// Whether an agent may answer now.
fn is_there(cluster: &ToldCluster) -> bool {
    let Some(phase) = cluster.phase.known() else {
        return cluster.line.up;
    };
    match phase {
        Phase::Offline | Phase::Joining | Phase::Pending | Phase::Unknown => false,
        Phase::Conflict
        | Phase::Broken
        | Phase::Healing
        | Phase::Degraded
        | Phase::Installing
        | Phase::Paused
        | Phase::Healthy => true,
    }
}

fn listed(names: &[ClusterName]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = names.iter().map(ClusterName::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::cli::exit;
    use crate::wire::word::Word;

    fn cluster(name: &str, phase: Phase, stage: &str) -> ToldCluster {
        let mut cluster = wait::tests::cluster(phase, &[], vec![]);
        cluster.name = name.parse().unwrap();
        cluster.labels.insert("stage".to_owned(), stage.to_owned());
        cluster
    }

    fn fleet() -> Vec<ToldCluster> {
        vec![
            cluster("us1", Phase::Healthy, "prod"),
            cluster("eu2", Phase::Offline, "prod"),
            cluster("eu1", Phase::Degraded, "prod"),
            cluster("lab", Phase::Pending, "test"),
        ]
    }

    fn names(names: &[&str]) -> Vec<ClusterName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn the_chosen_clusters_take_turns_by_name_and_who_is_not_there_is_left_out() {
        for (selectors, waited, turns, away) in [
            (&[][..], true, &["eu1", "us1"][..], &["eu2", "lab"][..]),
            (&["stage!=test"], true, &["eu1", "us1"], &["eu2"]),
            (&["stage=prod"], true, &["eu1", "us1"], &["eu2"]),
            (&["stage=prod"], false, &["eu1", "eu2", "us1"], &[]),
            (&["stage=prod", "stage=test"], true, &[], &[]),
        ] {
            let chosen: Vec<Selector> = selectors.iter().map(|s| s.parse().unwrap()).collect();
            let expected = Rollout {
                turns: names(turns),
                away: names(away),
            };
            assert_eq!(
                Rollout::of(fleet(), &chosen, waited),
                expected,
                "{selectors:?}"
            );
        }
    }

    #[test]
    fn of_a_phase_that_is_not_known_the_line_says_whether_somebody_is_there() {
        let mut later = cluster("eu1", Phase::Healthy, "prod");
        later.phase = Word::Later("Hibernating".to_owned());
        for up in [true, false] {
            later.line.up = up;
            let rollout = Rollout::of(vec![later.clone()], &[], true);
            assert_eq!(rollout.turns.len(), usize::from(up));
        }
    }

    #[tokio::test]
    async fn the_first_that_fails_ends_it_and_those_behind_it_are_not_asked() {
        let rollout = Rollout {
            turns: names(&["a", "b", "c", "d"]),
            away: names(&["e"]),
        };
        let mut asked = Vec::new();
        let ended = rollout.run(async |name| {
            asked.push(name.to_string());
            if name.as_str() == "b" {
                return Err(Failure::new(Code::Timeout, "5m passed", "look").into());
            }
            Ok(())
        });
        let error = ended.await.unwrap_err();
        assert_eq!(asked, ["a", "b"]);
        assert_eq!(
            format!("{error:#}"),
            "stopped at cluster b; upgraded before it: 1, not begun: c, d: 5m passed"
        );
        assert_eq!(exit::code(&error), Code::Timeout);
    }

    #[tokio::test]
    async fn who_was_left_out_is_named_at_the_end() {
        let rollout = Rollout {
            turns: names(&["a"]),
            away: names(&["e", "f"]),
        };
        let error = rollout.run(async |_| Ok(())).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "1 upgraded; 2 left out, for they are not there: e, f"
        );
    }
}
