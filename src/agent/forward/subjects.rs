//! Keeps `ClusterRole` `linesman-line-subjects`: exactly the users and groups that `linesman-line` may act
//! as. RBAC has no wildcards inside names, so the role follows the grants, and is extended at the first use
//! of a name that the hub asserts and the gate has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::upstream::Upstream;
use crate::agent::gate::well_named;

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
    /// Names that are known to work.
    pub allowed: watch::Sender<BTreeSet<Name>>,
}

/// The names of the role and when each was last used; `None` = by grant.
#[derive(Debug, Default)]
struct Book {
    names: BTreeMap<Name, Option<Instant>>,
    /// What the role holds as far as we know.
    written: Option<BTreeSet<Name>>,
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
    let (mut retry, mut granting) = (CHECK, true);
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            changed = keeper.granted.changed(), if granting => {
                granting = changed.is_ok();
                book.granted = true;
                book.grant(&keeper.granted.borrow_and_update().clone());
            }
            want = wants.recv() => match want {
                Some(want) => batch.push(want),
                None => return Ok(()),
            },
            () = tokio::time::sleep(retry) => {
                book.prune(Instant::now());
                // Someone may have changed it.
                book.written = None;
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
        self.write(book).await?;
        let deadline = Instant::now() + VISIBLE;
        for name in wanted {
            let (resource, text) = name.parts();
            while !self.upstream.may_impersonate(resource, text).await? {
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

    async fn write(&self, book: &mut Book) -> Result<()> {
        let names: BTreeSet<Name> = book.names.keys().cloned().collect();
        // Before anything is known, the role stays as the agent before us left it.
        let unknown = names.is_empty() && !book.granted;
        if unknown || book.written.as_ref() == Some(&names) {
            return Ok(());
        }
        // What is no longer in the role must be asked for again.
        self.allowed
            .send_modify(|allowed| allowed.retain(|name| names.contains(name)));
        let roles: Api<ClusterRole> = Api::all(self.kube.clone());
        let role = role(names.iter());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        roles
            .patch(CLUSTER_ROLE, &params, &Patch::Apply(&role))
            .await
            .context("write ClusterRole linesman-line-subjects")?;
        info!(names = names.len(), "{CLUSTER_ROLE} written");
        book.written = Some(names);
        Ok(())
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

/// The role that names them. Without names there is no rule: a rule without `resourceNames` allows every
/// name, `system:masters` too.
fn role<'a>(names: impl Iterator<Item = &'a Name>) -> Value {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for name in names {
        match name {
            Name::User(name) => users.push(name),
            Name::Group(name) => groups.push(name),
        }
    }
    let rule = |resource: &str, names: &Vec<&String>| {
        (!names.is_empty()).then(|| {
            json!({"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"], "resourceNames": names})
        })
    };
    let rules: Vec<Value> = [rule("users", &users), rule("groups", &groups)]
        .into_iter()
        .flatten()
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": CLUSTER_ROLE, "labels": {"app.kubernetes.io/managed-by": "linesman"}},
        "rules": rules,
    })
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
    fn the_role_pins_every_name() {
        let names = [
            Name::User("linesman:ada".to_owned()),
            Name::Group("linesman:admin".to_owned()),
        ];
        let role = role(names.iter());
        assert_eq!(
            role["rules"],
            json!([
                {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["linesman:ada"]},
                {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["linesman:admin"]},
            ])
        );
    }

    #[test]
    fn no_name_means_no_rule() {
        assert_eq!(role([].iter())["rules"], json!([]));
        let user = [Name::User("linesman:ada".to_owned())];
        assert_eq!(role(user.iter())["rules"].as_array().unwrap().len(), 1);
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
