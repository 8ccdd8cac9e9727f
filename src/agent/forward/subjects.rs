//! Keeps `ClusterRole` `linesman-line-subjects`: exactly the users and groups that `linesman-line` may act
//! as. RBAC has no wildcards inside names, so the role follows the grants, and is extended at the first use
//! of a name that the hub asserts and the gate has passed. Where the API server knows constrained impersonation,
//! the role also says what may be done as them: then the owner's read-only policy does not hang on the gate alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod probe;
mod role;

use super::upstream::Upstream;
use crate::agent::gate::policy::Policy;
use crate::agent::gate::well_named;
use role::{Form, Scope, role};

/// The role's name; the adoption YAML binds it to `linesman-line`.
pub const CLUSTER_ROLE: &str = "linesman-line-subjects";
const FIELD_MANAGER: &str = "linesman-agent";
/// First uses within this time become one write.
const COALESCE: Duration = Duration::from_millis(50);
/// How long a first use waits until the API server's authorizer has seen the role.
const VISIBLE: Duration = Duration::from_secs(2);
/// How long a name stays that no grant gives and nobody uses.
const UNUSED: Duration = Duration::from_hours(24);
/// How often the role is written although nothing changed, and how soon after a failure.
const CHECK: Duration = Duration::from_hours(1);
/// How often the API server is asked which form of impersonation it takes, where requests say that it is another.
const FORM: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(30);
/// Names in the role; it is one object in etcd.
const MOST: usize = 2_000;

/// Users and groups that grants give on this cluster, without the prefix `linesman:`.
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
}

/// The names of the role and when each was last used; `None` = by grant.
#[derive(Debug, Default)]
struct Book {
    names: BTreeMap<Name, Option<Instant>>,
    /// What the role holds as far as we know.
    written: Option<BTreeSet<Name>>,
    /// The form that the API server takes, and when that was found out; `None` = to be found out.
    form: Option<(Form, Instant)>,
    /// The hub has said which names grants give.
    granted: bool,
}

/// Runs until `stop`.
pub async fn keep(
    mut keeper: Keeper,
    mut wants: mpsc::Receiver<Want>,
    stop: CancellationToken,
) -> Result<()> {
    let mut book = Book::default();
    let (mut retry, mut granting, mut judging) = (CHECK, true, true);
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            changed = keeper.granted.changed(), if granting => {
                granting = changed.is_ok();
                book.granted = true;
                book.grant(&keeper.granted.borrow_and_update().clone());
            }
            changed = keeper.policy.changed(), if judging => {
                judging = changed.is_ok();
                let read_only = keeper.read_only();
                if book.form.as_ref().is_some_and(|(form, _)| !fits(form, read_only)) {
                    (book.form, book.written) = (None, None);
                }
            }
            want = wants.recv() => match want {
                Some(want) => batch.push(want),
                None => return Ok(()),
            },
            () = tokio::time::sleep(retry) => {
                book.prune(Instant::now());
                // Someone may have changed it, or the API server.
                (book.written, book.form) = (None, None);
            }
        }
        if !batch.is_empty() {
            tokio::time::sleep(COALESCE).await;
            while batch.len() < 256
                && let Ok(want) = wants.try_recv()
            {
                batch.push(want);
            }
        }
        retry = CHECK;
        if let Err(error) = keeper.serve(&mut book, batch).await {
            warn!(error, "{CLUSTER_ROLE}");
            retry = RETRY;
        }
    }
}

impl Keeper {
    /// Writes the role where it must change, waits until the wanted names work, answers.
    async fn serve(&self, book: &mut Book, batch: Vec<Want>) -> Result<(), String> {
        let now = Instant::now();
        let wanted: BTreeSet<Name> = batch.iter().flat_map(|want| want.names.clone()).collect();
        if batch.iter().any(|want| want.again) {
            book.written = None;
            if book.form.as_ref().is_none_or(|(_, at)| now - *at >= FORM) {
                book.form = None;
            }
        }
        let result = match book.used(&wanted, now) {
            Err(error) => Err(error),
            Ok(()) => self
                .in_force(book, &wanted)
                .await
                .map_err(|e| format!("{e:#}")),
        };
        for want in batch {
            // Whoever asked may be gone.
            let _gone = want.done.send(result.clone());
        }
        result
    }

    async fn in_force(&self, book: &mut Book, wanted: &BTreeSet<Name>) -> Result<()> {
        let form = self.form(book).await?;
        self.write(book, &form).await?;
        let deadline = Instant::now() + VISIBLE;
        for name in wanted {
            let (resource, text) = name.parts();
            let right = form.right();
            while !self.upstream.may_impersonate(right, resource, text).await? {
                anyhow::ensure!(
                    Instant::now() < deadline,
                    "linesman-line may not act as {resource} {text} although {CLUSTER_ROLE} names it; \
                     apply the adoption YAML again, its ClusterRoleBinding may be gone"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        self.allowed.send_modify(|allowed| {
            allowed.retain(|name| book.names.contains_key(name));
            allowed.extend(wanted.iter().cloned());
        });
        Ok(())
    }

    /// The form that the API server takes, found out where it is not known.
    async fn form(&self, book: &mut Book) -> Result<Form> {
        if let Some((form, _)) = &book.form {
            return Ok(form.clone());
        }
        let names: BTreeSet<Name> = book.names.keys().cloned().collect();
        if names.is_empty() && !book.granted {
            // The role of the agent before us is in force, and must not lose its names for a probe.
            return Ok(Form::Classic);
        }
        // Legacy rules, which every API server takes, and beside them the probe's.
        self.put(&names, &Form::Classic, true).await?;
        book.written = None;
        let form = match self.found().await {
            Ok(form) => form,
            Err(error) => {
                // The classic rules do for now; the next first use asks again.
                warn!(
                    error = format!("{error:#}"),
                    "form of impersonation not found out"
                );
                return Ok(Form::Classic);
            }
        };
        info!(constrained = form != Form::Classic, "impersonation");
        book.form = Some((form.clone(), Instant::now()));
        Ok(form)
    }

    /// Asks the API server; the probe's rules are in the role.
    async fn found(&self) -> Result<Form> {
        if !probe::is_constrained(&self.upstream).await? {
            return Ok(Form::Classic);
        }
        Ok(Form::Constrained(if self.read_only() {
            Scope::Read(probe::readable(&self.kube).await?)
        } else {
            Scope::Full
        }))
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
        self.put(&names, form, false).await?;
        info!(names = names.len(), "{CLUSTER_ROLE} written");
        book.written = Some(names);
        Ok(())
    }

    async fn put(&self, names: &BTreeSet<Name>, form: &Form, probing: bool) -> Result<()> {
        let roles: Api<ClusterRole> = Api::all(self.kube.clone());
        let role = role(names.iter(), form, probing);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        roles
            .patch(CLUSTER_ROLE, &params, &Patch::Apply(&role))
            .await
            .context("write ClusterRole linesman-line-subjects")?;
        Ok(())
    }
}

/// Whether a form is that of the owner's policy.
fn fits(form: &Form, read_only: bool) -> bool {
    match form {
        Form::Classic => true,
        Form::Constrained(Scope::Full) => !read_only,
        Form::Constrained(Scope::Read(_)) => read_only,
    }
}

impl Book {
    /// The grants, all of them: what they no longer give goes at once.
    fn grant(&mut self, granted: &Subjects) {
        let full = |name: &String| format!("linesman:{name}");
        let users = granted.users.iter().map(|name| Name::User(full(name)));
        let groups = granted.groups.iter().map(|name| Name::Group(full(name)));
        let granted: BTreeSet<Name> = users
            .chain(groups)
            .filter(|name| well_named(name.parts().1))
            .take(MOST)
            .collect();
        self.names
            .retain(|name, used| used.is_some() || granted.contains(name));
        for name in granted {
            self.names.insert(name, None);
        }
    }

    fn used(&mut self, wanted: &BTreeSet<Name>, now: Instant) -> Result<(), String> {
        for name in wanted {
            if !well_named(name.parts().1) {
                return Err(format!("'{}' is not a name of the line", name.parts().1));
            }
            if !self.names.contains_key(name) && self.names.len() >= MOST {
                return Err(format!(
                    "{CLUSTER_ROLE} is full with {MOST} names; grant to groups instead of users"
                ));
            }
            let used = self.names.entry(name.clone()).or_insert(Some(now));
            if used.is_some() {
                *used = Some(now);
            }
        }
        Ok(())
    }

    fn prune(&mut self, now: Instant) {
        self.names
            .retain(|_, used| used.is_none_or(|at| now.duration_since(at) < UNUSED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(users: &[&str], groups: &[&str]) -> Subjects {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Subjects {
            users: owned(users),
            groups: owned(groups),
        }
    }

    #[test]
    fn a_withdrawn_grant_leaves_the_role_at_once() {
        let mut book = Book::default();
        book.grant(&subjects(&["ada", "bob"], &["admin"]));
        book.grant(&subjects(&["bob"], &["admin"]));
        let names: Vec<_> = book.names.keys().map(|n| n.parts().1).collect();
        assert_eq!(names, ["linesman:bob", "linesman:admin"]);
    }

    #[test]
    fn names_in_use_stay_for_a_day() {
        let (mut book, start) = (Book::default(), Instant::now());
        let ada = BTreeSet::from([Name::User("linesman:ada".to_owned())]);
        assert_eq!(book.used(&ada, start), Ok(()));
        book.grant(&subjects(&[], &["admin"]));
        book.prune(start + UNUSED - Duration::from_secs(1));
        assert_eq!(book.names.len(), 2);
        book.prune(start + UNUSED);
        assert_eq!(book.names.len(), 1);
    }

    #[test]
    fn foreign_and_too_many_names_are_refused() {
        let mut book = Book::default();
        book.grant(&subjects(&["a b", "*", ""], &["x\ny"]));
        assert!(book.names.is_empty());
        let masters = BTreeSet::from([Name::Group("system:masters".to_owned())]);
        assert!(book.used(&masters, Instant::now()).is_err());
        let many = (0..MOST)
            .map(|n| Name::User(format!("linesman:u{n}")))
            .collect();
        assert_eq!(book.used(&many, Instant::now()), Ok(()));
        let one_more = BTreeSet::from([Name::User("linesman:last".to_owned())]);
        assert!(book.used(&one_more, Instant::now()).is_err());
    }
}
