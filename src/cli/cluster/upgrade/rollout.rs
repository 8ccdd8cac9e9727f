//! Several clusters, one after the other: what goes wrong in one does not reach the next.

use anyhow::{Context as _, Result};

use crate::cli::cluster::list::fits;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Closed, progress_line};
use crate::hub::selector::Selector;
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Phase, Status};

/// In which order, and who is left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rollout {
    turns: Vec<ClusterName>,
    /// Nobody there could be waited for.
    away: Vec<ClusterName>,
    /// Nothing would begin there, and those behind them would wait with it.
    paused: Vec<ClusterName>,
}

impl Rollout {
    /// Of the clusters those that all `selectors` take; where each is `waited` for, those that are there now.
    pub(super) fn of(mut clusters: Vec<ToldCluster>, selectors: &[Selector], waited: bool) -> Self {
        clusters.retain(|cluster| fits(cluster, selectors));
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        let there = |cluster: &ToldCluster| !waited || is_there(cluster);
        let (there, away): (Vec<_>, Vec<_>) = clusters.into_iter().partition(there);
        let held = |cluster: &ToldCluster| waited && is_paused(cluster);
        let (paused, turns): (Vec<_>, Vec<_>) = there.into_iter().partition(held);
        let names = |clusters: Vec<ToldCluster>| clusters.into_iter().map(|c| c.name).collect();
        Self {
            turns: names(turns),
            away: names(away),
            paused: names(paused),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.away.is_empty() && self.paused.is_empty()
    }

    /// Gives each cluster its turn, which says whether it was upgraded, and then whether that could be told; the first failure ends it.
    /// Whoever reads no further (`-o name | head -1`) does not, and is told at the end: the others are upgraded all the same.
    pub(super) async fn run(
        &self,
        mut turn: impl AsyncFnMut(&ClusterName) -> Result<Result<()>>,
    ) -> Result<()> {
        let (all, mut unread) = (self.turns.len(), Ok(()));
        for (done, name) in self.turns.iter().enumerate() {
            progress_line(&format!("cluster {name}, {} of {all}", done + 1));
            let behind = || listed(self.turns.get(done + 1..).unwrap_or_default());
            let told = turn(name).await.with_context(|| {
                let behind = behind();
                format!(
                    "stopped at cluster {name}; upgraded before it: {done}, not begun: {behind}"
                )
            })?;
            match told {
                Err(error) if error.is::<Closed>() => unread = Err(error),
                told => told.with_context(|| {
                    let (done, behind) = (done + 1, behind());
                    format!(
                        "stopped after cluster {name}; upgraded with it: {done}, not begun: {behind}"
                    )
                })?,
            }
        }
        let left_out = [
            (&self.away, "they are not there"),
            (
                &self.paused,
                "nothing begins there now (maintenance window, or heal: off)",
            ),
        ];
        let left_out = left_out.iter().filter(|(names, _)| !names.is_empty());
        let left_out = left_out.map(|(names, why)| {
            let (count, names) = (names.len(), listed(names));
            format!("{count} left out, for {why}: {names}")
        });
        let left_out: Vec<String> = left_out.collect();
        if left_out.is_empty() {
            return unread;
        }
        let text = format!("{all} upgraded; {}", left_out.join("; "));
        let next = "run it again when they are back, or free to begin; see: linesman cluster list";
        Err(Failure::new(Code::Failed, text, next).into())
    }
}

/// Whether its agent begins nothing, by the word of the hub or of the cluster's owner.
fn is_paused(cluster: &ToldCluster) -> bool {
    let mut told = cluster.conditions.iter();
    told.any(|c| c.kind == ConditionType::Paused && c.status == Status::True)
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
    use crate::wire::api::ToldCondition;
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

    /// Whose turns came, each of which ended so, and with what the whole failed.
    async fn failed(
        rollout: &Rollout,
        mut turn: impl FnMut(&str) -> Result<Result<()>>,
    ) -> (Vec<String>, anyhow::Error) {
        let mut asked = Vec::new();
        let ended = rollout.run(async |name| {
            asked.push(name.to_string());
            turn(name.as_str())
        });
        let error = ended.await.unwrap_err();
        (asked, error)
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
                paused: Vec::new(),
            };
            assert_eq!(
                Rollout::of(fleet(), &chosen, waited),
                expected,
                "{selectors:?}"
            );
        }
    }

    /// It would keep those behind it waiting, each time anew: whatever its phase is, for a fault hides the window in it.
    #[test]
    fn a_cluster_where_nothing_begins_now_is_left_out_and_keeps_nobody_waiting() {
        let paused = |status: Status| {
            let mut cluster = cluster("eu1", Phase::Degraded, "prod");
            cluster.conditions.push(ToldCondition {
                kind: ConditionType::Paused.into(),
                status: status.into(),
                reason: "HealOff".to_owned(),
                message: String::new(),
                since: String::new(),
            });
            cluster
        };
        for (status, waited, turns, held) in [
            (Status::True, true, &["us1"][..], &["eu1"][..]),
            (Status::False, true, &["eu1", "us1"], &[]),
            // A wish that is withdrawn is nothing to wait for.
            (Status::True, false, &["eu1", "us1"], &[]),
        ] {
            let expected = Rollout {
                turns: names(turns),
                away: Vec::new(),
                paused: names(held),
            };
            let fleet = vec![cluster("us1", Phase::Healthy, "prod"), paused(status)];
            assert_eq!(Rollout::of(fleet, &[], waited), expected, "{status:?}");
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
            paused: Vec::new(),
        };
        let (asked, error) = failed(&rollout, |name| match name {
            "b" => Err(Failure::new(Code::Timeout, "5m passed", "look").into()),
            _ => Ok(Ok(())),
        })
        .await;
        assert_eq!(asked, ["a", "b"]);
        assert_eq!(
            format!("{error:#}"),
            "stopped at cluster b; upgraded before it: 1, not begun: c, d: 5m passed"
        );
        assert_eq!(exit::code(&error), Code::Timeout);
    }

    /// It was told as the one where the upgrade failed.
    #[tokio::test]
    async fn a_cluster_that_could_not_be_told_of_is_among_those_that_were_upgraded() {
        let rollout = Rollout {
            turns: names(&["a", "b", "c"]),
            ..Rollout::default()
        };
        let (asked, error) = failed(&rollout, |name| match name {
            "b" => Ok(Err(
                Failure::new(Code::Failed, "the hub is away", "look").into()
            )),
            _ => Ok(Ok(())),
        })
        .await;
        assert_eq!(asked, ["a", "b"]);
        assert_eq!(
            format!("{error:#}"),
            "stopped after cluster b; upgraded with it: 2, not begun: c: the hub is away"
        );
        assert_eq!(exit::code(&error), Code::Failed);
    }

    /// It ended well with the first name that nobody read, and the clusters behind that kept their image.
    #[tokio::test]
    async fn whoever_reads_no_further_leaves_no_cluster_behind() {
        let rollout = Rollout {
            turns: names(&["a", "b", "c"]),
            ..Rollout::default()
        };
        let (asked, error) = failed(&rollout, |name| match name {
            "c" => Ok(Ok(())),
            _ => Ok(Err(Closed(std::io::ErrorKind::BrokenPipe.into()).into())),
        })
        .await;
        assert!(error.is::<Closed>(), "{error:#}");
        assert_eq!(asked, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn who_was_left_out_is_named_at_the_end() {
        let rollout = Rollout {
            turns: names(&["a"]),
            away: names(&["e", "f"]),
            paused: names(&["g"]),
        };
        let error = rollout.run(async |_| Ok(Ok(()))).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "1 upgraded; 2 left out, for they are not there: e, f; 1 left out, for nothing begins there now (maintenance \
             window, or heal: off): g"
        );
    }
}
