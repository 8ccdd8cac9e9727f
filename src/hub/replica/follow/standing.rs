//! Whether what runs here may go on, as it is on record.
//!
//! There may be thousands of requests: each token and each cluster is asked for once, some at a time, and one that is not
//! answered keeps the look from none of the others.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{LOOK, TAKEN};
use crate::clock;
use crate::hub::access::{self, Grant};
use crate::hub::running::{By, Gone};
use crate::hub::store::StoreError;
use crate::hub::{Hub, auth, chain_of};
use crate::wire::id::ClusterName;

/// Questions at once. Fewer than the store reads at once, so that requests go on meanwhile.
const AT_ONCE: usize = 3;

/// A cluster's name and labels.
type Home = (ClusterName, BTreeMap<String, String>);

/// Looks again whenever another change is `wanted`, and until all that runs was looked at.
pub(super) async fn follow(hub: &Hub, mut wanted: watch::Receiver<Option<i64>>) {
    let (mut told, mut done) = (None, None);
    loop {
        let now = *wanted.borrow_and_update();
        if now != told {
            // The agents hear whom their lines may act as.
            hub.access_changed.notify_one();
            told = now;
        }
        if now != done || hub.requests.late() {
            // What is cut off here knows nothing of it any more.
            done = None;
            match end_lost(hub).await {
                Ok(()) => done = now,
                Err(_) if hub.store.is_away() => {}
                Err(error) => {
                    tracing::error!(error = chain_of(&error), "look at what runs here");
                }
            }
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            Ok(()) = wanted.changed() => {}
        }
    }
}

/// Ends what runs here by something that is no more, as it is on record.
///
/// # Errors
/// Some of the records cannot be read: what runs by those was not looked at, and all the rest was.
pub async fn end_lost(hub: &Hub) -> Result<(), StoreError> {
    let running = hub.requests.look();
    let records = (
        |token: String| async move { held(hub, &token).await },
        |cluster: String| async move {
            let cluster = hub.store.cluster_by_id(&cluster).await?;
            Ok(cluster.map(|cluster| (cluster.name, cluster.labels)))
        },
    );
    look_through(&running, records, |gone| {
        hub.requests.end(gone);
    })
    .await
}

/// What its user has been granted; None = the token lets nobody in any more.
async fn held(hub: &Hub, token: &str) -> Result<Option<Vec<Grant>>, StoreError> {
    let user = if let Some((token, user)) = hub.store.api_token(token).await? {
        token.revoked_at.is_none().then_some(user)
    } else {
        let session = hub.store.session(token).await?;
        session.and_then(|(session, user)| (!session.ended).then_some(user))
    };
    let Some(user) = user.filter(|user| !user.disabled) else {
        return Ok(None);
    };
    let asker = access::Asker {
        name: &user.name,
        groups: auth::groups(&user, hub.config.oidc.as_ref(), clock::now()),
    };
    hub.store.grants_of(&asker.subjects()).await.map(Some)
}

/// Asks the records for each token, then for each cluster; the first question that failed is the error.
async fn look_through<H, C>(
    running: &[By],
    (held, cluster): (impl Fn(String) -> H, impl Fn(String) -> C),
    mut end: impl FnMut(Gone<'_>),
) -> Result<(), StoreError>
where
    H: Future<Output = Result<Option<Vec<Grant>>, StoreError>>,
    C: Future<Output = Result<Option<Home>, StoreError>>,
{
    let mut failed = Ok(());
    let mut note = |error| {
        if failed.is_ok() {
            failed = Err(error);
        }
    };
    let by_token = grouped(running, |by| Some(&by.token_id));
    let mut holds: HashMap<String, Vec<Grant>> = HashMap::new();
    let mut answers = stream::iter(ids(&by_token))
        .map(|id| answered(id.clone(), held(id)))
        .buffer_unordered(AT_ONCE);
    while let Some((token, answer)) = answers.next().await {
        match answer {
            Ok(Some(grants)) => {
                for by in by_token.get(token.as_str()).into_iter().flatten() {
                    lost(by, &grants, &mut end);
                }
                holds.insert(token, grants);
            }
            Ok(None) => end(Gone::Token(&token)),
            Err(error) => note(error),
        }
    }
    let by_cluster = grouped(running, |by| by.cluster_id.as_ref());
    let mut answers = stream::iter(ids(&by_cluster))
        .map(|id| answered(id.clone(), cluster(id)))
        .buffer_unordered(AT_ONCE);
    while let Some((id, answer)) = answers.next().await {
        match answer {
            Ok(Some((name, labels))) => {
                let place = access::Place {
                    name: &name,
                    labels: &labels,
                };
                for by in by_cluster.get(id.as_str()).into_iter().flatten() {
                    if let Some(held) = holds.get(&by.token_id) {
                        out_of_reach(by, (&id, &place), held, &mut end);
                    }
                }
            }
            // One that was removed has no line.
            Ok(None) => {}
            Err(error) => note(error),
        }
    }
    failed
}

/// Ends what ran by grants that its user does not have any more.
fn lost(by: &By, held: &[Grant], end: &mut impl FnMut(Gone<'_>)) {
    let has = |id: &String| held.iter().any(|grant| grant.id == *id);
    let gone: Vec<String> = by.grants.iter().filter(|id| !has(id)).cloned().collect();
    if !gone.is_empty() {
        end(Gone::Held {
            user: &by.user_id,
            grants: &gone,
        });
    }
}

/// Ends what ran by grants that its cluster is not among any more. Of those that the user has alone: what one user lost, others
/// may have.
fn out_of_reach(
    by: &By,
    (id, place): (&str, &access::Place<'_>),
    held: &[Grant],
    end: &mut impl FnMut(Gone<'_>),
) {
    let elsewhere = |id: &&String| {
        let grant = held.iter().find(|grant| grant.id == **id);
        grant.is_some_and(|grant| !grant.clusters.contain(place))
    };
    let gone: Vec<String> = by.grants.iter().filter(elsewhere).cloned().collect();
    if !gone.is_empty() {
        end(Gone::Reach {
            cluster: id,
            grants: &gone,
        });
    }
}

type Groups<'a> = BTreeMap<&'a str, Vec<&'a By>>;

fn grouped<'a>(running: &'a [By], of: impl Fn(&'a By) -> Option<&'a String>) -> Groups<'a> {
    let mut groups = Groups::new();
    for by in running {
        if let Some(id) = of(by) {
            groups.entry(id).or_default().push(by);
        }
    }
    groups
}

fn ids(groups: &Groups<'_>) -> Vec<String> {
    groups.keys().map(|id| (*id).to_owned()).collect()
}

/// A question has its own time, as much as a slow database needs: one that hangs is one that failed.
async fn answered<T>(
    id: String,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> (String, Result<T, StoreError>) {
    let answer = timeout(TAKEN, asked).await;
    let silent = || Err(StoreError::Silent("look whether what runs may go on"));
    (id, answer.unwrap_or_else(|_| silent()))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::future::pending;
    use std::time::Duration;

    use time::OffsetDateTime;
    use tokio::time::Instant;

    use super::*;
    use crate::hub::access::{Clusters, Mode};

    const TOKENS: usize = 200;
    const CLUSTERS: usize = 100;
    /// Requests that run by each token, each to another cluster.
    const EACH: usize = 10;
    /// How long the records take for an answer.
    const SLOW: Duration = Duration::from_millis(100);

    fn grant(id: String, clusters: Clusters) -> Grant {
        Grant {
            id,
            subject: "user:ada".parse().unwrap(),
            clusters,
            groups: ["edit".to_owned()].into(),
            act_as: BTreeSet::new(),
            namespaces: None,
            mode: Mode::Full,
            expires_at: None,
            revoked_at: None,
            revoked_by: None,
            reason: String::new(),
            created_by: "hub".to_owned(),
            created_at: OffsetDateTime::UNIX_EPOCH,
            rev: 1,
        }
    }

    fn running() -> Vec<By> {
        let of = |token: usize| {
            (0..EACH).map(move |n| By {
                user_id: format!("u{token}"),
                token_id: format!("t{token}"),
                cluster_id: Some(format!("c{}", (token + n) % CLUSTERS)),
                grants: vec![format!("g{token}"), "everywhere".to_owned()],
                until: None,
            })
        };
        (0..TOKENS).flat_map(of).collect()
    }

    fn said(gone: Gone<'_>) -> String {
        match gone {
            Gone::Token(token) => token.to_owned(),
            Gone::Held { user, grants } => format!("{user} without {}", grants.join(" ")),
            Gone::Reach { cluster, grants } => format!("{cluster} not by {}", grants.join(" ")),
            Gone::User(_) | Gone::Grant { .. } => "something else".to_owned(),
        }
    }

    /// H17: 2,000 requests by 200 tokens to 100 clusters, and records that take a tenth of a second for each answer: each is
    /// asked for once, some at a time, and the ones that hang keep the look from nothing else.
    #[tokio::test(start_paused = true)]
    async fn much_that_runs_is_looked_through_in_time_by_slow_records() {
        let asked = Cell::new(0);
        let ended = RefCell::new(BTreeSet::new());
        let answer = async || {
            asked.set(asked.get() + 1);
            sleep(SLOW).await;
        };
        let held = |token: String| async move {
            answer().await;
            let everywhere = grant("everywhere".to_owned(), Clusters::All);
            let own = |clusters| grant(token.replace('t', "g"), clusters);
            match token.as_str() {
                "t7" => Ok(None),
                "t8" => Ok(Some(vec![everywhere])),
                "t9" => pending().await,
                // Not on the other clusters any more.
                "t20" => {
                    let left = (20..28).map(|n| format!("c{n}").parse().unwrap());
                    Ok(Some(vec![everywhere, own(Clusters::Named(left.collect()))]))
                }
                _ => Ok(Some(vec![everywhere, own(Clusters::All)])),
            }
        };
        let cluster = |id: String| async move {
            answer().await;
            match id.as_str() {
                "c21" => Err(StoreError::Silent("read a cluster")),
                _ => Ok(Some((id.parse().unwrap(), BTreeMap::new()))),
            }
        };
        let began = Instant::now();
        let running = running();
        let looked = look_through(&running, (held, cluster), |gone| {
            ended.borrow_mut().insert(said(gone));
        })
        .await;
        assert!(
            matches!(
                looked,
                Err(StoreError::Silent("look whether what runs may go on"))
            ),
            "{looked:?}"
        );
        let expected = ["c28 not by g20", "c29 not by g20", "t7", "u8 without g8"];
        assert_eq!(ended.into_inner(), expected.map(str::to_owned).into());
        assert_eq!(asked.get(), TOKENS + CLUSTERS);
        let most = SLOW * u32::try_from((TOKENS + CLUSTERS) / AT_ONCE).unwrap() + TAKEN;
        assert!(began.elapsed() <= most, "{:?}", began.elapsed());
    }
}
