//! Keeps `ClusterRole` `linesman-line-subjects`: exactly the users and groups that `linesman-line` may act
//! as. RBAC has no wildcards inside names, so the role follows the grants, and is extended at the first use
//! of a name that the hub asserts and the gate has passed. Where the API server knows constrained impersonation,
//! the role also says what may be done as them: then the owner's read-only policy does not hang on the gate alone.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::FutureExt as _;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod book;
mod form;
mod look;
mod probe;
mod reviews;
mod role;

use super::call;
use super::upstream::{self, Upstream};
use crate::agent::gate::policy::Policy;
use crate::lifetime::hearts::Heart;
use book::Book;
use form::FOUND_ON;
use reviews::Reviews;
use role::{Form, Scope, role};

/// The role's name; the adoption YAML binds it to `linesman-line`.
pub const CLUSTER_ROLE: &str = "linesman-line-subjects";
const FIELD_MANAGER: &str = "linesman-agent";
/// First uses within this time become one write, of so many at most.
const COALESCE: Duration = Duration::from_millis(50);
const BATCH: usize = 256;
/// How often the role is written although nothing changed, and how soon after a failure.
const CHECK: Duration = Duration::from_hours(1);
/// How often the API server is asked which form of impersonation it takes, where requests say that it is another.
const FORM: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(30);

/// Users and groups that grants give on this cluster, without the prefix `linesman:`, those first that are not to be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subjects {
    pub users: Vec<String>,
    pub groups: Vec<String>,
}

/// Something that can be acted as, with its full name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    User(String),
    Group(String),
}

impl Name {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::User(name) => ("users", name),
            Self::Group(name) => ("groups", name),
        }
    }
}

/// Asks that these names can be acted as; answered when they can, or with the reason why not.
pub struct Want {
    pub names: Vec<Name>,
    /// Write the role even where it should hold them: the API server said otherwise.
    pub again: bool,
    pub done: oneshot::Sender<Result<(), String>>,
}

/// What the keeper works with.
pub struct Keeper {
    pub kube: kube::Client,
    pub upstream: Upstream,
    pub granted: watch::Receiver<Subjects>,
    /// The owner's.
    pub policy: watch::Receiver<Option<Policy>>,
    /// Names that are known to work.
    pub allowed: watch::Sender<BTreeSet<Name>>,
    /// Beats after each call, which has a deadline.
    pub heart: Heart,
}

/// What the keeper turns to.
enum Turn {
    End,
    /// Something may have to be written.
    Serve,
    /// A name was looked at.
    Looked,
}

/// Runs until `stop`.
pub async fn keep(
    mut keeper: Keeper,
    mut wants: mpsc::Receiver<Want>,
    stop: CancellationToken,
) -> Result<()> {
    let mut book = Book::default();
    let mut reviews = keeper.reviews();
    let (mut granting, mut judging) = (true, true);
    let mut due = Instant::now() + CHECK;
    // Not its own: the loop below borrows the rest.
    let heart = keeper.heart.clone();
    loop {
        let mut batch = Vec::new();
        let next = async {
            tokio::select! {
                () = stop.cancelled() => return Turn::End,
                changed = keeper.granted.changed(), if granting => {
                    granting = changed.is_ok();
                    book.granted = true;
                    book.grant(&keeper.granted.borrow_and_update().clone());
                }
                changed = keeper.policy.changed(), if judging => {
                    judging = changed.is_ok();
                    let read_only = keeper.read_only();
                    book.stale |= book.form.as_ref().is_some_and(|form| !fits(form, read_only));
                }
                () = reviews.step() => return Turn::Looked,
                want = wants.recv(), if reviews.has_room() => match want {
                    Some(want) => batch.push(want),
                    None => return Turn::End,
                },
                () = tokio::time::sleep_until(due) => {
                    book.prune(Instant::now());
                    // Someone may have changed it, or the API server.
                    (book.written, book.stale) = (None, true);
                }
            }
            Turn::Serve
        };
        match heart.through(next).await {
            Turn::End => return Ok(()),
            Turn::Serve => {
                let round = keeper.round(&mut book, &mut reviews, &mut wants, batch);
                let Some(wait) = stop.run_until_cancelled(round).await else {
                    return Ok(());
                };
                let now = Instant::now();
                due = if due <= now {
                    now + wait
                } else {
                    due.min(now + wait)
                };
            }
            Turn::Looked => {}
        }
        if keeper.learn(&book, &mut reviews) {
            due = due.min(Instant::now() + RETRY);
        }
    }
}

impl Keeper {
    fn reviews(&self) -> Reviews {
        let (server, heart) = (self.upstream.clone(), self.heart.clone());
        Reviews::new(Form::Classic.right(), move |right, name| {
            let (server, heart, name) = (server.clone(), heart.clone(), name.clone());
            let look = async move {
                let (resource, text) = name.parts();
                let _wait = heart.wait(upstream::LONGEST);
                server.may_impersonate(right, resource, text).await
            };
            look.boxed()
        })
    }

    /// Serves a batch, and has its names reviewed; reviews that are under way go on meanwhile. Gives when to look again.
    async fn round(
        &self,
        book: &mut Book,
        reviews: &mut Reviews,
        wants: &mut mpsc::Receiver<Want>,
        batch: Vec<Want>,
    ) -> Duration {
        let served = {
            let mut serving = pin!(async {
                let batch = gather(batch, wants).await;
                self.serve(book, batch).await
            });
            loop {
                tokio::select! {
                    served = &mut serving => break served,
                    () = reviews.step() => {}
                }
            }
        };
        match served {
            Ok(placed) => {
                let right = book.form.as_ref().unwrap_or(&Form::Classic).right();
                reviews.admit(right, placed);
                book.wait()
            }
            Err(error) => {
                warn!(error, "{CLUSTER_ROLE}");
                RETRY
            }
        }
    }

    /// Writes the role where it must change. Gives back those whose names are in it now; all others are answered.
    async fn serve(&self, book: &mut Book, batch: Vec<Want>) -> Result<Vec<Want>, String> {
        if batch.is_empty() && self.policy.borrow().is_none() {
            // What the owner allows is not known yet; that it is read comes here again.
            return Ok(Vec::new());
        }
        let now = Instant::now();
        if batch.iter().any(|want| want.again) {
            book.written = None;
            book.stale |= book.asked.is_none_or(|at| now - at >= FORM);
        }
        let placed = placed(book, batch, now);
        match self.in_force(book).await {
            Ok(()) => Ok(placed),
            Err(error) => {
                let why = format!("{error:#}");
                for want in placed {
                    // Whoever asked may be gone.
                    let _gone = want.done.send(Err(why.clone()));
                }
                Err(why)
            }
        }
    }

    async fn in_force(&self, book: &mut Book) -> Result<()> {
        let form = self.form(book).await?;
        self.write(book, &form).await
    }

    /// Makes known which names may be acted as. Whether a review failed: someone may have changed the role.
    fn learn(&self, book: &Book, reviews: &mut Reviews) -> bool {
        let learned = std::mem::take(&mut reviews.learned);
        if !learned.is_empty() {
            // One may have left the role while it was looked at.
            let held = |name: &Name| book.names.contains_key(name);
            self.allowed
                .send_modify(|allowed| allowed.extend(learned.into_iter().filter(held)));
        }
        std::mem::take(&mut reviews.failed)
    }

    fn read_only(&self) -> bool {
        let policy = self.policy.borrow();
        policy.as_ref().is_some_and(|policy| policy.read_only)
    }

    async fn write(&self, book: &mut Book, form: &Form) -> Result<()> {
        let names: BTreeSet<Name> = book.names.keys().cloned().collect();
        // Before anything is known, the role stays as the agent before us left it.
        let unknown = names.is_empty() && !book.granted;
        if unknown || book.written.as_ref() == Some(&names) {
            return Ok(());
        }
        // What is no longer in the role must be asked for again.
        self.allowed
            .send_modify(|allowed| allowed.retain(|name| names.contains(name)));
        // Where it is constrained the probe's rules stay, so that the next question needs no write that may be seen late.
        let probing = *form != Form::Classic;
        self.put(&names, form, book.found_on.as_deref(), probing)
            .await?;
        info!(names = names.len(), "{CLUSTER_ROLE} written");
        book.written = Some(names);
        Ok(())
    }

    async fn put(
        &self,
        names: &BTreeSet<Name>,
        form: &Form,
        found_on: Option<&str>,
        probing: bool,
    ) -> Result<()> {
        let roles: Api<ClusterRole> = Api::all(self.kube.clone());
        let mut role = role(names.iter(), form, probing);
        if let (Form::Constrained(_), Some(version)) = (form, found_on) {
            role["metadata"]["annotations"] = json!({FOUND_ON: version});
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        call(
            &self.heart,
            roles.patch(CLUSTER_ROLE, &params, &Patch::Apply(&role)),
        )
        .await
        .context("write ClusterRole linesman-line-subjects")?;
        Ok(())
    }
}

/// A batch with those who come at the same time.
async fn gather(mut batch: Vec<Want>, wants: &mut mpsc::Receiver<Want>) -> Vec<Want> {
    if !batch.is_empty() {
        tokio::time::sleep(COALESCE).await;
        while batch.len() < BATCH
            && let Ok(want) = wants.try_recv()
        {
            batch.push(want);
        }
    }
    batch
}

/// Those whose names have a place in the role; each of the others is told why not. Who is in it already comes first, so that
/// no newcomer of the same moment takes that place.
fn placed(book: &mut Book, batch: Vec<Want>, now: Instant) -> Vec<Want> {
    let is_known = |want: &Want| want.names.iter().all(|name| book.names.contains_key(name));
    let (known, new): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_known);
    let (mut placed, mut refused) = (Vec::new(), None);
    for want in known.into_iter().chain(new) {
        match book.used(&want.names.iter().cloned().collect(), now) {
            Ok(()) => placed.push(want),
            Err(why) => {
                // Whoever asked may be gone.
                let _gone = want.done.send(Err(why.clone()));
                refused = Some(why);
            }
        }
    }
    if let Some(error) = refused {
        warn!(error, "{CLUSTER_ROLE}");
    }
    placed
}

/// Whether a form is that of the owner's policy.
fn fits(form: &Form, read_only: bool) -> bool {
    match form {
        Form::Classic => true,
        Form::Constrained(Scope::Full) => !read_only,
        Form::Constrained(Scope::Read(_)) => read_only,
    }
}

#[cfg(test)]
mod tests;
