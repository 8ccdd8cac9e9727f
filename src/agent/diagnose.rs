//! Answers the hub's order to diagnose: what the watchdog sees, and a live look at the API server and at the catalog.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Desired;
use super::caller::{Call, Caller};
use super::enroll::gitpath::GitPath;
use super::plan::Class;
use crate::clock;
use crate::wire::api::{Component, DiagnosisAnswer, Verdict};
use crate::wire::id::ClusterName;

/// The watchdog answers between two of its steps.
const WATCHDOG: Duration = Duration::from_secs(5);
const API: Duration = Duration::from_secs(5);
/// An answer that takes longer than this is told as slow.
const SLOW: Duration = Duration::from_secs(2);

/// Asks the watchdog for its rows.
pub type Question = oneshot::Sender<Vec<Component>>;

/// What a diagnosis is made from.
pub(super) struct Diagnosing {
    pub(super) kube: kube::Client,
    pub(super) cluster: ClusterName,
    pub(super) caller: Caller,
    pub(super) path: GitPath,
    pub(super) desired: watch::Receiver<Option<Desired>>,
    pub(super) watchdog: mpsc::Sender<Question>,
    /// The ids of the hub's orders.
    pub(super) asked: mpsc::Receiver<String>,
}

impl Diagnosing {
    /// Answers one order after the other until stopped.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<()> {
        while let Some(Some(id)) = stop.run_until_cancelled(self.asked.recv()).await {
            let Some(told) = stop.run_until_cancelled(Box::pin(self.tell(id))).await else {
                break;
            };
            if let Err(error) = told {
                warn!(error = format!("{error:#}"), "diagnosis not delivered");
            }
        }
        stop.cancelled().await;
        Ok(())
    }

    async fn tell(&self, id: String) -> Result<()> {
        let (api, git, mut components) =
            tokio::join!(self.api_server(), self.catalog(), self.engine());
        components.extend([api, git]);
        info!(components = components.len(), "diagnosis");
        let answer = DiagnosisAnswer {
            id,
            at: clock::rfc3339(clock::now()),
            components,
        };
        let path = format!("/v1/clusters/{}/diagnoses", self.cluster);
        let call = Call::post(path, &answer)?;
        let told = self.caller.call(&call).await?;
        anyhow::ensure!(told.status.is_success(), "{}", told.refusal());
        Ok(())
    }

    async fn engine(&self) -> Vec<Component> {
        let (ask, answer) = oneshot::channel();
        let asked = async {
            self.watchdog.send(ask).await.ok()?;
            answer.await.ok()
        };
        if let Ok(Some(rows)) = timeout(WATCHDOG, asked).await {
            return rows;
        }
        let rests = self.desired.borrow().as_ref().map(|desired| desired.rests);
        vec![unanswered(&self.cluster, rests)]
    }

    async fn api_server(&self) -> Component {
        let began = Instant::now();
        let asked = timeout(API, self.kube.apiserver_version()).await;
        let took = began.elapsed();
        let fix = "look at the cluster's API server: nothing is healed while it does not answer";
        let (works, fresh, found) = match asked {
            Ok(Ok(version)) => {
                let text = format!(
                    "Kubernetes {} answers in {} ms",
                    version.git_version,
                    took.as_millis()
                );
                let fresh = if took < SLOW {
                    Verdict::Yes
                } else {
                    Verdict::No
                };
                (Verdict::Yes, fresh, text)
            }
            Ok(Err(error)) => (Verdict::No, Verdict::None, error.to_string()),
            Err(_) => {
                let text = format!("no answer within {} s", API.as_secs());
                (Verdict::No, Verdict::None, text)
            }
        };
        let good = works == Verdict::Yes && fresh == Verdict::Yes;
        Component {
            works,
            fresh,
            fix: if good { String::new() } else { fix.to_owned() },
            ..row("API server", &found)
        }
    }

    /// Reads the catalog's branch with the cluster's own key, as the engine has to.
    async fn catalog(&self) -> Component {
        let desired = self.desired.borrow().clone();
        let Some(desired) = desired else {
            return Component {
                works: Verdict::Unknown,
                ..row("Git path", "not tried: the catalog is not assigned yet")
            };
        };
        let catalog = &desired.assignment.catalog;
        let began = Instant::now();
        let url = match catalog.source().parse() {
            Ok(url) => url,
            Err(error) => {
                return Component {
                    works: Verdict::No,
                    fix: "correct the catalog's address at the hub".to_owned(),
                    ..row("Git path", &format!("{error}"))
                };
            }
        };
        let walked = self
            .path
            .walk(&url, catalog, &desired.deploy_key.private)
            .await;
        let took = began.elapsed().as_millis();
        match walked {
            Ok(head) => Component {
                works: Verdict::Yes,
                ..row(
                    "Git path",
                    &format!(
                        "{} is at {}, read with the cluster's key in {took} ms",
                        catalog.branch, head.commit
                    ),
                )
            },
            Err(error) => Component {
                works: Verdict::No,
                fix: next(error.step()).to_owned(),
                ..row("Git path", &error.to_string())
            },
        }
    }
}

/// What is said of a watchdog that did not answer. `rests`: whether another engine takes the place of its own; none = it has none yet.
fn unanswered(cluster: &ClusterName, rests: Option<bool>) -> Component {
    let (works, found, fix) = match rests {
        None => (
            Verdict::No,
            "has no engine to watch yet: the adoption has not come that far".to_owned(),
            format!(
                "see where the adoption is: linesman cluster show {cluster}; kubectl -n linesman logs deploy/linesman-agent"
            ),
        ),
        Some(true) => (
            Verdict::Unknown,
            "rests: another engine takes this one's place".to_owned(),
            format!("see how far that is: linesman cluster show {cluster}"),
        ),
        // One that stands still is `/livez`' to tell, and is restarted.
        Some(false) => (
            Verdict::Unknown,
            format!(
                "is at work and did not answer within {} s",
                WATCHDOG.as_secs()
            ),
            format!("ask again; linesman heal list {cluster} says what it does"),
        ),
    };
    Component {
        works,
        fix,
        ..row("watchdog", &found)
    }
}

/// What a person does about the step that failed.
fn next(step: crate::ssh::Step) -> &'static str {
    use crate::ssh::Step;
    match step {
        Step::Dns | Step::Tcp => {
            "make the Git host reachable from the cluster, or let Git go over the line: linesman cluster git NAME line"
        }
        Step::HostKey => {
            "compare the fingerprints; if the Git host's key was changed on purpose, change it at the hub"
        }
        Step::Offer => {
            "see whether the Git host has too much to do (MaxStartups of its sshd), or what stands before it resets connections; the agent tries again"
        }
        // A rotation begins only with a key that the Git host takes.
        Step::Auth => Class::KeyRevoked.advice(),
        Step::Repo | Step::Branch => {
            "see that the catalog's repository and branch exist at the Git host"
        }
    }
}

fn row(name: &str, found: &str) -> Component {
    Component {
        name: name.to_owned(),
        exists: Verdict::None,
        works: Verdict::None,
        fresh: Verdict::None,
        found: found.chars().take(1000).collect(),
        fix: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::Step;

    /// An engine that is replaced is not watched, and a step may take longer than the question: nothing is wrong with the adoption.
    #[test]
    fn a_watchdog_that_rests_or_is_at_work_is_not_called_broken() {
        let cluster = "eu1".parse().unwrap();
        let said = [None, Some(true), Some(false)].map(|rests| {
            let row = unanswered(&cluster, rests);
            (row.works, row.found, row.fix)
        });
        let expected = [
            (
                Verdict::No,
                "has no engine to watch yet: the adoption has not come that far",
                "see where the adoption is: linesman cluster show eu1; kubectl -n linesman logs deploy/linesman-agent",
            ),
            (
                Verdict::Unknown,
                "rests: another engine takes this one's place",
                "see how far that is: linesman cluster show eu1",
            ),
            (
                Verdict::Unknown,
                "is at work and did not answer within 5 s",
                "ask again; linesman heal list eu1 says what it does",
            ),
        ];
        let texts =
            |(works, found, fix): (Verdict, &str, &str)| (works, found.to_owned(), fix.to_owned());
        assert_eq!(said, expected.map(texts));
    }

    /// F26: a diagnosis and the heal of the same fault send people the same way.
    #[test]
    fn what_mends_a_refused_key_is_what_its_fault_says() {
        let said = next(Step::Auth);
        let readopt =
            "register the cluster's deploy key at the Git host again: 'linesman cluster readopt'";
        assert_eq!((said, Class::KeyRevoked.advice()), (readopt, readopt));
        // A host that hangs up has refused nothing.
        assert!(next(Step::Offer).contains("the agent tries again"));
    }
}
